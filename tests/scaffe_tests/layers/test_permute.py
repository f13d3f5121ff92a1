"""Permute against numpy's transpose and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import ShapeError


def text(*order):
    return f'type: "Permute" permute_param {{ {" ".join(f"order: {axis}" for axis in order)} }}'


@pytest.mark.parametrize(
    ("given", "whole"),
    [((0, 2, 3, 1), (0, 2, 3, 1)), ((), (0, 1, 2, 3)), ((2,), (2, 0, 1, 3)), ((0, 3), (0, 3, 1, 2))],
)
def test_axes_are_those_of_the_order_and_then_the_others(given, whole):
    x = distinct(2, 3, 4, 5)
    np.testing.assert_array_equal(OneLayer(text(*given), x).forward()[0], x.transpose(whole))
    check_gradients(text(*given), distinct(2, 3, 2, 2))


@pytest.mark.parametrize(("order", "mixes"), [((0, 2, 1), False), ((), False), ((1, 0), True)])
def test_samples_are_mixed_where_axis_0_moves(order, mixes):
    it = OneLayer(text(*order), distinct(2, 3, 4))
    assert bool(it.layer.mixes_samples(it.bottom)) == mixes


@pytest.mark.parametrize("order", [(0, 0), (0, 3)])
def test_an_order_that_is_none_is_refused(order):
    with pytest.raises(ShapeError, match=r"layer 'it'.*order \[0, \d\] of a bottom of shape \(1, 2, 3\)"):
        OneLayer(text(*order), distinct(1, 2, 3))
