"""Scale: y = a x, or a x + b with `bias_term`, the operand learned or the second bottom."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct
from operands import FILLER, GIVEN, LEARNED, text


@pytest.mark.parametrize(("shape", "axis", "num_axes", "part", "view"), LEARNED)
def test_a_learned_factor_repeats_over_the_other_axes(shape, axis, num_axes, part, view):
    x = distinct(*shape)
    it = OneLayer(text("Scale", axis, num_axes), x)
    operand = it.layer.blobs[0].array
    assert operand.shape == part
    np.testing.assert_array_equal(it.forward()[0], x * operand.reshape(view))


@pytest.mark.parametrize(("shape", "axis", "num_axes", "part", "view"), LEARNED)
def test_gradients_with_a_learned_factor_agree_with_finite_differences(shape, axis, num_axes, part, view):
    check_gradients(text("Scale", axis, num_axes), distinct(*shape))


@pytest.mark.parametrize(("shape", "axis", "part", "view"), GIVEN)
def test_values_and_gradients_with_two_bottoms(shape, axis, part, view):
    x, operand = distinct(*shape), distinct(*part, seed=1) + 1
    (y,) = OneLayer(text("Scale", axis), x, operand).forward()
    np.testing.assert_array_equal(y, x * operand.reshape(view))
    check_gradients(text("Scale", axis), x, operand)


@pytest.mark.parametrize("bottoms", [1, 2])
def test_a_learned_bias_has_the_factors_shape(bottoms):
    x, operand = distinct(2, 3, 4), distinct(3, seed=1)
    snippet = text("Scale", 1, more=FILLER + ' bias_term: true bias_filler { type: "gaussian" }')
    given = [x, operand][:bottoms]
    it = OneLayer(snippet, *given)
    factor = operand if bottoms == 2 else it.layer.blobs[0].array
    bias = it.layer.blobs[-1].array
    assert len(it.layer.blobs) == 3 - bottoms and bias.any()
    np.testing.assert_allclose(it.forward()[0], x * factor[:, None] + bias[:, None], rtol=1e-12)
    check_gradients(snippet, *given)


def test_without_a_filler_nothing_changes():
    x = distinct(2, 3)
    np.testing.assert_array_equal(OneLayer('type: "Scale"', x).forward()[0], x)
