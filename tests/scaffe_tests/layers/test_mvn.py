"""MVN against numpy's mean and deviation, finite differences, and itself in place."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import ShapeError

VARIANTS = ["", "across_channels: true", "normalize_variance: false", "normalize_variance: false across_channels: true"]


def text(fields):
    return f'type: "MVN" mvn_param {{ {fields} }}'


@pytest.mark.parametrize("fields", VARIANTS)
@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 2, 2, 3), (2, 1, 2, 2, 2)])
def test_each_picture_gets_mean_0_and_deviation_1(fields, shape):
    x = distinct(*shape)
    it = OneLayer(text(fields), x)
    axes = tuple(range(1 if it.layer.across else 2, x.ndim))
    expected = x - x.mean(axis=axes, keepdims=True)
    if it.layer.scales:
        expected /= x.std(axis=axes, keepdims=True) + it.layer.eps
    np.testing.assert_allclose(it.forward()[0], expected, rtol=1e-10, atol=1e-12)
    check_gradients(text(fields), x)


@pytest.mark.parametrize("fields", VARIANTS)
def test_in_place_gives_the_same_values_and_gradients(fields):
    x, dy = distinct(2, 3, 4), distinct(2, 3, 4, seed=1)
    apart, in_place = OneLayer(text(fields), x), OneLayer(text(fields), x, in_place=True)
    np.testing.assert_array_equal(in_place.forward(), apart.forward())
    np.testing.assert_array_equal(in_place.backward(dy), apart.backward(dy))


def test_a_picture_of_one_value_is_0_and_has_no_gradient():
    it = OneLayer(text(""), np.full((2, 2, 3), 7.0))
    assert not it.forward()[0].any()
    assert np.isfinite(it.backward(1)[0]).all()


def test_a_bottom_without_channels_is_refused():
    with pytest.raises(ShapeError, match=r"layer 'it'.*2 axes.*\(4,\)"):
        OneLayer(text(""), distinct(4))
