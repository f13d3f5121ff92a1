"""Crop against numpy's slices and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError


def text(fields=""):
    return f'type: "Crop" crop_param {{ {fields} }}'


CASES = [
    ("", (9, 9, 2, 3), np.s_[:, :, :2, :3]),
    ("offset: 1", (9, 9, 2, 3), np.s_[:, :, 1:3, 1:4]),
    ("offset: 2 offset: 1", (9, 9, 2, 3), np.s_[:, :, 2:4, 1:4]),
    ("axis: 1 offset: 0 offset: 1 offset: 2", (9, 2, 1, 2), np.s_[:, :2, 1:2, 2:4]),
    ("axis: -1 offset: 3", (9, 9, 9, 1), np.s_[..., 3:4]),
    ("axis: 0 offset: 1", (1, 2, 3, 4), np.s_[1:2, 1:3, 1:4, 1:5]),
]


@pytest.mark.parametrize(("fields", "wanted", "part"), CASES)
def test_the_part_at_the_offset_has_the_second_bottoms_size(fields, wanted, part):
    x = distinct(2, 3, 4, 5)
    np.testing.assert_array_equal(OneLayer(text(fields), x, np.zeros(wanted)).forward()[0], x[part])


@pytest.mark.parametrize(("fields", "wanted", "part"), CASES[1:4])
def test_gradient_agrees_with_finite_differences_and_the_second_bottom_has_none(fields, wanted, part):
    x = distinct(2, 3, 4, 5)
    check_gradients(text(fields), x, np.zeros((1, *wanted[1:])), smooth=[0])
    it = OneLayer(text(fields), x, np.zeros((1, *wanted[1:])))
    it.bottom[1].diff_array[...] = np.nan
    it.forward()
    assert not it.backward(1)[1].any()


def test_parts_that_reach_beyond_the_bottom_are_refused_with_both_shapes():
    with pytest.raises(ShapeError, match=r"layer 'it'.*offset 3 and 2 .*axis 2.*\(2, 3, 4, 5\).*\(1, 1, 2, 2\)"):
        OneLayer(text("offset: 3"), distinct(2, 3, 4, 5), np.zeros((1, 1, 2, 2)))
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(2, 3, 4\).*\(1, 2\)"):
        OneLayer(text(), distinct(2, 3, 4), np.zeros((1, 2)))


def test_offsets_are_one_or_one_an_axis():
    with pytest.raises(NetError, match="layer 'it'.*2 offset for 3"):
        OneLayer(text("axis: 1 offset: 1 offset: 1"), distinct(2, 3, 4, 5), np.zeros((1, 1, 1, 1)))


@pytest.mark.parametrize(("fields", "mixes"), [("axis: 0", True), ("axis: 1", False)])
def test_only_axis_0_mixes_samples(fields, mixes):
    it = OneLayer(text(fields), distinct(2, 3), np.zeros((2, 3)))
    assert bool(it.layer.mixes_samples(it.bottom)) == mixes
