"""Slice against numpy's split and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError


def text(fields=""):
    return f'type: "Slice" slice_param {{ {fields} }}'


CASES = [
    ("", 1, [2, 4]),
    ("axis: 0 slice_point: 1", 0, [1]),
    ("axis: -1 slice_point: 1 slice_point: 3", 2, [1, 3]),
    ("slice_dim: 1 slice_point: 5", 1, [5]),
    ("axis: 2", 2, []),
]


@pytest.mark.parametrize(("fields", "axis", "points"), CASES)
def test_tops_are_the_parts_between_the_points(fields, axis, points):
    x = distinct(3, 6, 4)
    parts = OneLayer(text(fields), x, tops=len(points) + 1).forward()
    for ours, expected in zip(parts, np.split(x, points, axis), strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize(("fields", "axis", "points"), CASES)
def test_gradient_agrees_with_finite_differences(fields, axis, points):
    check_gradients(text(fields), distinct(3, 6, 4), tops=len(points) + 1)


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ("axis: 1 slice_dim: 1", NetError, "both axis and slice_dim"),
        ("slice_point: 1 slice_point: 2", NetError, "2 slice_point for 2 tops"),
        ("axis: 0", ShapeError, r"2 tops.*axis 0.*\(3, 6\)"),
        ("slice_point: 0", ShapeError, r"\[0\].*\(3, 6\)"),
        ("slice_point: 6", ShapeError, r"\[6\].*\(3, 6\)"),
    ],
)
def test_points_that_do_not_fit_are_refused(fields, kind, message):
    with pytest.raises(kind, match=f"layer 'it'.*{message}"):
        OneLayer(text(fields), distinct(3, 6), tops=2)


@pytest.mark.parametrize(("fields", "mixes"), [("axis: 0 slice_point: 1", True), ("axis: 1", False)])
def test_only_axis_0_mixes_samples(fields, mixes):
    it = OneLayer(text(fields), distinct(3, 6), tops=2)
    assert bool(it.layer.mixes_samples(it.bottom)) == mixes
