"""Concat against numpy's concatenate and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError

CASES = [
    ("", 1, [(2, 3), (2, 1), (2, 4)]),
    ("concat_param { axis: 0 }", 0, [(2, 3), (1, 3)]),
    ("concat_param { axis: -1 }", 2, [(2, 3, 1), (2, 3, 2)]),
    ("concat_param { concat_dim: 2 }", 2, [(2, 1, 2, 3), (2, 1, 5, 3)]),
    ("", 1, [(3, 2)]),
]


@pytest.mark.parametrize(("fields", "axis", "shapes"), CASES)
def test_top_is_the_bottoms_in_a_row(fields, axis, shapes):
    bottoms = [distinct(*shape, seed=i) for i, shape in enumerate(shapes)]
    (y,) = OneLayer(f'type: "Concat" {fields}', *bottoms).forward()
    np.testing.assert_array_equal(y, np.concatenate(bottoms, axis))


@pytest.mark.parametrize(("fields", "axis", "shapes"), CASES)
def test_gradients_agree_with_finite_differences(fields, axis, shapes):
    bottoms = [distinct(*shape, seed=i) for i, shape in enumerate(shapes)]
    check_gradients(f'type: "Concat" {fields}', *bottoms)
    check_gradients(f'type: "Concat" {fields}', *bottoms, smooth=[len(bottoms) - 1])


def test_a_bottom_that_needs_no_gradient_gets_none():
    it = OneLayer('type: "Concat"', distinct(2, 3), distinct(2, 1))
    it.forward()
    first, second = it.backward(np.ones((2, 4)), down=[False, True])
    assert (first == 0).all()
    assert (second == 1).all()


@pytest.mark.parametrize("other", [(3, 3), (2, 3, 1)])
def test_bottoms_that_do_not_meet_are_refused_with_both_shapes(other):
    with pytest.raises(ShapeError, match=r"'it'.*\(2, 3\) and \(" + ", ".join(map(str, other))):
        OneLayer('type: "Concat"', np.zeros((2, 3)), np.zeros(other))


def test_both_spellings_of_the_axis_are_refused():
    with pytest.raises(NetError, match="concat_dim"):
        OneLayer('type: "Concat" concat_param { axis: 1 concat_dim: 1 }', np.zeros((2, 3)))


@pytest.mark.parametrize(("axis", "mixes"), [(0, True), (-2, True), (1, False)])
def test_only_axis_0_mixes_samples(axis, mixes):
    it = OneLayer(f'type: "Concat" concat_param {{ axis: {axis} }}', np.zeros((2, 3)))
    assert bool(it.layer.mixes_samples(it.bottom)) == mixes
