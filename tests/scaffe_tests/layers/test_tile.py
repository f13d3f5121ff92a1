"""Tile against numpy's tile and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError


def text(tiles, axis=1):
    return f'type: "Tile" tile_param {{ tiles: {tiles} axis: {axis} }}'


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("tiles", [1, 3])
def test_copies_stand_side_by_side_and_their_gradients_add_up(axis, tiles):
    x = distinct(2, 3, 2)
    repeats = [1, 1, 1]
    repeats[axis] = tiles
    np.testing.assert_array_equal(OneLayer(text(tiles, axis), x).forward()[0], np.tile(x, repeats))
    check_gradients(text(tiles, axis), x)


@pytest.mark.parametrize("tiles", [0, -1])
def test_no_copies_are_refused(tiles):
    with pytest.raises(NetError, match=f"layer 'it'.*tiles {tiles}"):
        OneLayer(text(tiles), distinct(2, 3))


@pytest.mark.parametrize("axis", [0, 1])
def test_only_axis_0_mixes_samples(axis):
    it = OneLayer(text(2, axis), distinct(2, 3))
    assert bool(it.layer.mixes_samples(it.bottom)) == (axis == 0)
