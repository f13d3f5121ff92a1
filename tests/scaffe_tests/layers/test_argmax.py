"""ArgMax against a plain sort."""

import numpy as np
import pytest
from gradient_check import OneLayer, distinct
from hypothesis import given
from hypothesis import strategies as st

from scaffe.errors import NetError, ShapeError


def text(fields=""):
    return f'type: "ArgMax" argmax_param {{ {fields} }}'


def best(values, top_k):
    """Return the indices of the largest values, the highest index first of equal ones."""
    return sorted(range(len(values)), key=lambda i: (values[i], i), reverse=True)[:top_k]


@given(st.lists(st.lists(st.integers(-3, 3), min_size=5, max_size=5), min_size=1, max_size=4), st.integers(1, 5))
def test_the_largest_come_first_and_of_equal_ones_the_last(rows, top_k):
    (y,) = OneLayer(text(f"top_k: {top_k}"), np.array(rows, float)).forward()
    np.testing.assert_array_equal(y, [[best(row, top_k)] for row in rows])


def test_values_stand_below_their_indices():
    x = distinct(2, 3, 2)
    (y,) = OneLayer(text("top_k: 2 out_max_val: true"), x).forward()
    for sample, (indices, values) in zip(x.reshape(2, -1), y, strict=True):
        np.testing.assert_array_equal(indices, best(sample, 2))
        np.testing.assert_array_equal(values, sample[indices.astype(int)])


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("top_k", [1, 2])
def test_an_axis_of_its_own_keeps_the_others(axis, top_k):
    x = distinct(3, 4, 2)
    (indices,) = OneLayer(text(f"axis: {axis} top_k: {top_k}"), x).forward()
    (values,) = OneLayer(text(f"axis: {axis} top_k: {top_k} out_max_val: true"), x).forward()
    order = np.argsort(-x, axis=axis).take(range(top_k), axis=axis)
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))


@pytest.mark.parametrize(
    ("shape", "fields", "top"),
    [((4,), "", (4, 1, 1)), ((4, 3), "top_k: 2", (4, 1, 2)), ((2, 3, 4, 5, 6), "", (2, 1, 1, 1, 1))],
)
def test_without_an_axis_the_top_has_at_least_three(shape, fields, top):
    assert OneLayer(text(fields), distinct(*shape)).top[0].shape == top


def test_more_than_there_are_or_none_are_refused():
    with pytest.raises(ShapeError, match=r"layer 'it'.*top_k 4 exceeds the 3"):
        OneLayer(text("top_k: 4"), distinct(2, 3))
    with pytest.raises(NetError, match="layer 'it'.*top_k 0"):
        OneLayer(text("top_k: 0"), distinct(2, 3))


def test_it_has_no_gradient():
    it = OneLayer(text(), distinct(2, 3))
    it.forward()
    with pytest.raises(NetError, match="layer 'it'.*gradient"):
        it.backward(1)


@pytest.mark.parametrize(("fields", "mixes"), [("", False), ("axis: 1", False), ("axis: 0", True)])
def test_only_axis_0_mixes_samples(fields, mixes):
    it = OneLayer(text(fields), distinct(2, 3))
    assert bool(it.layer.mixes_samples(it.bottom)) == mixes
