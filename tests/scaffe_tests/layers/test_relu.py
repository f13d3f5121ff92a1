"""ReLU against its formula, finite differences, and itself in place."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

PLAIN = 'type: "ReLU"'
LEAKY = 'type: "ReLU" relu_param { negative_slope: 0.25 }'


@pytest.mark.parametrize(("text", "slope"), [(PLAIN, 0), (LEAKY, 0.25)])
def test_negative_values_are_scaled_by_the_slope(text, slope):
    x = distinct(3, 5, 2)
    (y,) = OneLayer(text, x).forward()
    np.testing.assert_array_equal(y, [[[v if v > 0 else slope * v for v in row] for row in plane] for plane in x])


@pytest.mark.parametrize("text", [PLAIN, LEAKY])
@pytest.mark.parametrize("shape", [(1,), (7, 3), (2, 3, 1, 5)])
def test_gradient_agrees_with_finite_differences(text, shape):
    check_gradients(text, distinct(*shape))


@pytest.mark.parametrize("text", [PLAIN, LEAKY])
def test_in_place_gives_the_same_values_and_gradients(text):
    x, dy = distinct(4, 5), distinct(4, 5, seed=1)
    apart, in_place = OneLayer(text, x), OneLayer(text, x, in_place=True)
    np.testing.assert_array_equal(in_place.forward(), apart.forward())
    np.testing.assert_array_equal(in_place.backward(dy), apart.backward(dy))


@pytest.mark.parametrize("text", [PLAIN, LEAKY])
def test_gradient_at_zero_is_the_slopes(text):
    it = OneLayer(text, np.zeros(3))
    it.forward()
    np.testing.assert_array_equal(it.backward(np.ones(3))[0], it.layer.slope)
