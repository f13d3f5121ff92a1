"""Layers that compute value by value: what holds for each, given the function that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.context import Context


class Case(NamedTuple):
    """A layer's prototxt and its function; a factor and a summand bring values of -1/2 to 1/2 into its domain."""

    text: str
    function: Callable[[float], float]
    factor: float = 4
    summand: float = 0

    def values(self, *shape: int) -> np.ndarray:
        return distinct(*shape) * self.factor + self.summand


def values_are_those_of_the_function(case: Case) -> None:
    x = case.values(2, 5, 7)
    (y,) = OneLayer(case.text, x).forward()
    expected = [case.function(value) for value in x.reshape(-1)]
    np.testing.assert_allclose(y.reshape(-1), expected, rtol=1e-12, atol=1e-14)


def gradients_agree_with_finite_differences(case: Case) -> None:
    for shape in ((1,), (7, 3), (2, 3, 1, 5)):
        check_gradients(case.text, case.values(*shape))


def in_place_gives_the_same_values_and_gradients(case: Case) -> None:
    x, dy = case.values(4, 5), distinct(4, 5, seed=1)
    apart, in_place = OneLayer(case.text, x), OneLayer(case.text, x, in_place=True)
    np.testing.assert_array_equal(in_place.forward(), apart.forward())
    np.testing.assert_array_equal(in_place.backward(dy), apart.backward(dy))


def a_bottom_that_needs_no_gradient_gets_none(case: Case) -> None:
    it = OneLayer(case.text, case.values(2, 3))
    it.forward()
    it.bottom[0].diff_array[...] = 7
    np.testing.assert_array_equal(it.backward(np.ones((2, 3)), down=[False])[0], np.full((2, 3), 7))


def float32_stays_float32(case: Case) -> None:
    it = OneLayer(case.text, case.values(3), context=Context())
    for blob in (*it.bottom, *it.top):
        blob.array = blob.array.astype(np.float32)
        blob.diff_array = blob.diff_array.astype(np.float32)
    it.forward()
    it.backward(np.ones(3))
    assert {blob.array.dtype for blob in it.top} | {blob.diff_array.dtype for blob in it.bottom} == {np.dtype("f4")}


CHECKS = (
    values_are_those_of_the_function,
    gradients_agree_with_finite_differences,
    in_place_gives_the_same_values_and_gradients,
    a_bottom_that_needs_no_gradient_gets_none,
    float32_stays_float32,
)


def each_check_of(*cases: Case) -> pytest.MarkDecorator:
    """Parametrize a test that calls `check(case)`: all of the above for each case."""
    pairs = [pytest.param(check, case, id=f"{check.__name__}, {case.text}") for check, case in product(CHECKS, cases)]
    return pytest.mark.parametrize(("check", "case"), pairs)


def assert_limits(text: str, below: float, above: float) -> None:
    """Fail unless the layer maps -10000 and 10000 to these values, with gradients that are finite."""
    it = OneLayer(text, [-1e4, 1e4])
    np.testing.assert_allclose(it.forward()[0], [below, above], atol=1e-12)
    assert np.isfinite(it.backward([1, 1])[0]).all()


def logistic(x: float) -> float:
    return 1 / (1 + np.exp(-x))
