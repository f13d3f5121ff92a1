"""PReLU against its formula, finite differences, and itself in place."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import ShapeError

OWN = 'type: "PReLU" prelu_param { filler { type: "gaussian" } }'
SHARED = 'type: "PReLU" prelu_param { channel_shared: true filler { type: "gaussian" } }'


@pytest.mark.parametrize("text", [OWN, SHARED])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 3, 2, 2)])
def test_negative_values_are_scaled_by_the_slope_of_their_channel(text, shape):
    x = distinct(*shape)
    it = OneLayer(text, x)
    slopes = np.broadcast_to(it.layer.blobs[0].array, shape[1])
    expected = np.empty(shape)
    for index in np.ndindex(*shape):
        expected[index] = x[index] if x[index] > 0 else slopes[index[1]] * x[index]
    np.testing.assert_allclose(it.forward()[0], expected, rtol=1e-12)


@pytest.mark.parametrize("text", [OWN, SHARED])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 2, 2)])
def test_gradients_agree_with_finite_differences(text, shape):
    check_gradients(text, distinct(*shape))


@pytest.mark.parametrize("text", [OWN, SHARED])
def test_in_place_gives_the_same_values_and_gradients(text):
    x, dy = distinct(4, 3, 2), distinct(4, 3, 2, seed=1)
    apart, in_place = OneLayer(text, x), OneLayer(text, x, in_place=True)
    np.testing.assert_array_equal(in_place.forward(), apart.forward())
    np.testing.assert_array_equal(in_place.backward(dy), apart.backward(dy))
    np.testing.assert_array_equal(in_place.layer.blobs[0].diff_array, apart.layer.blobs[0].diff_array)


def test_slopes_are_a_quarter_where_no_filler_is_given():
    (y,) = OneLayer('type: "PReLU"', [[-4.0, 4.0]]).forward()
    np.testing.assert_array_equal(y, [[-1, 4]])


def test_the_gradient_at_zero_is_the_slopes():
    it = OneLayer('type: "PReLU"', np.zeros((1, 1)))
    it.forward()
    assert it.backward([[1]])[0] == 0.25


def test_other_channels_than_the_slopes_are_refused_with_both():
    it = OneLayer(OWN, distinct(2, 3))
    it.bottom[0].reshape(2, 4)
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(2, 4\).*3 channels"):
        it.layer.reshape(it.bottom, it.top)


def test_a_bottom_without_channels_is_refused():
    with pytest.raises(ShapeError, match="channels"):
        OneLayer(OWN, distinct(3))
