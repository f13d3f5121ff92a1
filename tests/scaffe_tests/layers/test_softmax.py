"""Softmax against its formula and finite differences."""

from math import exp

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

SHAPES = [((5, 3), 1), ((2, 3, 2, 2), 1), ((2, 3, 5), 2), ((2, 3, 5), -2), ((4, 2), 0), ((3, 1), 1)]


def text(axis):
    return f'type: "Softmax" softmax_param {{ axis: {axis} }}'


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_each_value_is_its_exponentials_share(shape, axis):
    x = distinct(*shape) * 4
    (y,) = OneLayer(text(axis), x).forward()
    for index in np.ndindex(*shape):
        around = list(index)
        around[axis] = slice(None)
        assert y[index] == pytest.approx(exp(x[index]) / sum(map(exp, x[tuple(around)])), rel=1e-12)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_gradient_agrees_with_finite_differences(shape, axis):
    check_gradients(text(axis), distinct(*shape) * 4)


def test_large_scores_do_not_overflow():
    (y,) = OneLayer(text(1), [[1000.0, 999.0, -1000.0]]).forward()
    np.testing.assert_allclose(y, [[1 / (1 + exp(-1)), exp(-1) / (1 + exp(-1)), 0]], rtol=1e-12)


def test_in_place_gives_the_same_values_and_gradients():
    x, dy = distinct(4, 5), distinct(4, 5, seed=1)
    apart, in_place = OneLayer(text(1), x), OneLayer(text(1), x, in_place=True)
    np.testing.assert_array_equal(in_place.forward(), apart.forward())
    np.testing.assert_array_equal(in_place.backward(dy), apart.backward(dy))
