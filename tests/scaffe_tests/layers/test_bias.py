"""Bias: y = x + b, the operand learned or the second bottom."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct
from operands import GIVEN, LEARNED, text


@pytest.mark.parametrize(("shape", "axis", "num_axes", "part", "view"), LEARNED)
def test_a_learned_summand_repeats_over_the_other_axes(shape, axis, num_axes, part, view):
    x = distinct(*shape)
    it = OneLayer(text("Bias", axis, num_axes), x)
    operand = it.layer.blobs[0].array
    assert operand.shape == part
    np.testing.assert_array_equal(it.forward()[0], x + operand.reshape(view))


@pytest.mark.parametrize(("shape", "axis", "num_axes", "part", "view"), LEARNED)
def test_gradients_with_a_learned_summand_agree_with_finite_differences(shape, axis, num_axes, part, view):
    check_gradients(text("Bias", axis, num_axes), distinct(*shape))


@pytest.mark.parametrize(("shape", "axis", "part", "view"), GIVEN)
def test_values_and_gradients_with_two_bottoms(shape, axis, part, view):
    x, operand = distinct(*shape), distinct(*part, seed=1) + 1
    (y,) = OneLayer(text("Bias", axis), x, operand).forward()
    np.testing.assert_array_equal(y, x + operand.reshape(view))
    check_gradients(text("Bias", axis), x, operand)


def test_without_a_filler_nothing_changes():
    x = distinct(2, 3)
    np.testing.assert_array_equal(OneLayer('type: "Bias"', x).forward()[0], x)
