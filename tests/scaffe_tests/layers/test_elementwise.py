"""Layers that compute value by value, against math's functions, finite differences, and themselves in place."""

from math import exp, expm1, log, log1p, tanh

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.context import Context
from scaffe.errors import NetError


def logistic(x):
    return 1 / (1 + exp(-x))


# Each layer with the function it stands for, and a factor and summand that bring the values into its domain.
LAYERS = {
    'type: "AbsVal"': (abs, 4, 0),
    'type: "BNLL"': (lambda x: log1p(exp(x)), 8, 0),
    'type: "Clip" clip_param { min: -0.5 max: 1 }': (lambda x: min(max(x, -0.5), 1), 3.9, 0),
    'type: "ELU"': (lambda x: x if x > 0 else expm1(x), 4, 0),
    'type: "ELU" elu_param { alpha: 0.5 }': (lambda x: x if x > 0 else 0.5 * expm1(x), 4, 0),
    'type: "Exp"': (exp, 4, 0),
    'type: "Exp" exp_param { base: 2 scale: 3 shift: -0.5 }': (lambda x: 2 ** (3 * x - 0.5), 2, 0),
    'type: "Exp" exp_param { base: 0.5 }': (lambda x: 0.5**x, 4, 0),
    'type: "Log"': (log, 1, 2),
    'type: "Log" log_param { base: 10 scale: 2 shift: 3 }': (lambda x: log(2 * x + 3, 10), 2, 0),
    'type: "Log" log_param { base: 0.5 }': (lambda x: log(x, 0.5), 1, 2),
    'type: "Power"': (lambda x: x, 4, 0),
    'type: "Power" power_param { power: 2 scale: 0.5 shift: 1 }': (lambda x: (0.5 * x + 1) ** 2, 4, 0),
    'type: "Power" power_param { power: 3 shift: 1.5 }': (lambda x: (x + 1.5) ** 3, 2, 0),
    'type: "Power" power_param { power: -0.5 scale: 2 shift: 3 }': (lambda x: (2 * x + 3) ** -0.5, 2, 0),
    'type: "Power" power_param { power: 0 scale: 2 }': (lambda x: 1, 4, 0),
    'type: "Power" power_param { power: 2 scale: 0 shift: 3 }': (lambda x: 9, 4, 0),
    'type: "Sigmoid"': (logistic, 8, 0),
    'type: "Swish"': (lambda x: x * logistic(x), 8, 0),
    'type: "Swish" swish_param { beta: 1.5 }': (lambda x: x * logistic(1.5 * x), 4, 0),
    'type: "TanH"': (tanh, 4, 0),
}


def values(text, *shape):
    _, factor, summand = LAYERS[text]
    return distinct(*shape) * factor + summand


@pytest.mark.parametrize("text", LAYERS)
def test_values_are_those_of_the_function(text):
    x = values(text, 2, 5, 7)
    (y,) = OneLayer(text, x).forward()
    expected = [LAYERS[text][0](value) for value in x.reshape(-1)]
    np.testing.assert_allclose(y.reshape(-1), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("text", LAYERS)
@pytest.mark.parametrize("shape", [(1,), (7, 3), (2, 3, 1, 5)])
def test_gradient_agrees_with_finite_differences(text, shape):
    check_gradients(text, values(text, *shape))


@pytest.mark.parametrize("text", LAYERS)
def test_in_place_gives_the_same_values_and_gradients(text):
    x, dy = values(text, 4, 5), distinct(4, 5, seed=1)
    apart, in_place = OneLayer(text, x), OneLayer(text, x, in_place=True)
    np.testing.assert_array_equal(in_place.forward(), apart.forward())
    np.testing.assert_array_equal(in_place.backward(dy), apart.backward(dy))


@pytest.mark.parametrize("text", LAYERS)
def test_a_bottom_that_needs_no_gradient_gets_none(text):
    it = OneLayer(text, values(text, 2, 3))
    it.forward()
    it.bottom[0].diff_array[...] = 7
    assert (it.backward(np.ones((2, 3)), down=[False])[0] == 7).all()


@pytest.mark.parametrize("kind", ["BNLL", "ELU", "Sigmoid", "Swish", "TanH"])
def test_large_values_do_not_overflow(kind):
    it = OneLayer(f'type: "{kind}"', [-1e4, 1e4])
    limits = {"BNLL": [0, 1e4], "ELU": [-1, 1e4], "Sigmoid": [0, 1], "Swish": [0, 1e4], "TanH": [-1, 1]}
    np.testing.assert_allclose(it.forward()[0], limits[kind], atol=1e-12)
    assert np.isfinite(it.backward([1, 1])[0]).all()


def test_the_gradient_passes_at_the_bounds_of_clip_and_not_at_the_corner_of_abs_val():
    clip = OneLayer('type: "Clip" clip_param { min: -1 max: 1 }', [-1.0, 1.0])
    corner = OneLayer('type: "AbsVal"', [0.0])
    clip.forward()
    corner.forward()
    np.testing.assert_array_equal(clip.backward([3, 4])[0], [3, 4])
    assert corner.backward([5])[0] == 0


def test_the_gradient_of_a_power_is_not_a_number_at_0_as_in_caffe():
    it = OneLayer('type: "Power" power_param { power: 3 }', [0.0, 2.0])
    it.forward()
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(it.backward([1, 1])[0], [np.nan, 12])


def test_threshold_marks_values_above_it_and_has_no_gradient():
    it = OneLayer('type: "Threshold" threshold_param { threshold: 0.5 }', [0.4, 0.5, 0.6])
    np.testing.assert_array_equal(it.forward()[0], [0, 0, 1])
    with pytest.raises(NetError, match="layer 'it'.*gradient"):
        it.backward([1, 1, 1])
    it.backward([1, 1, 1], down=[False])


def test_float32_stays_float32():
    for text in LAYERS:
        it = OneLayer(text, values(text, 3), context=Context())
        for blob in (*it.bottom, *it.top):
            blob.array = blob.array.astype(np.float32)
            blob.diff_array = blob.diff_array.astype(np.float32)
        it.forward()
        it.backward(np.ones(3))
        assert {blob.array.dtype for blob in it.top} | {blob.diff_array.dtype for blob in it.bottom} == {np.dtype("f4")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('type: "Clip" clip_param { min: 2 max: 1 }', "min 2 above max 1"),
        ('type: "Exp" exp_param { base: 0 }', "base 0"),
        ('type: "Exp" exp_param { base: -2 }', "base -2"),
        ('type: "Log" log_param { base: 1 }', "base 1"),
        ('type: "Log" log_param { base: 0 }', "base 0"),
    ],
)
def test_fields_out_of_range_are_named_with_their_values(text, message):
    with pytest.raises(NetError, match=f"layer 'it'.*{message}"):
        OneLayer(text, [1.0])
