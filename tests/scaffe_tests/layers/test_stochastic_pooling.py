"""Stochastic pooling: what it draws and how often, its mean, and that ranks draw the same as one would."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, contexts, distinct, rows

from scaffe.context import TEST, Context

SHAPES = [(2, 3, 6, 5), (1, 1, 7, 7)]
FIELDS = ["kernel_size: 2 stride: 2", "kernel_size: 3 stride: 2", "kernel_h: 2 kernel_w: 3"]


def text(fields="kernel_size: 2 stride: 2"):
    return f'type: "Pooling" pooling_param {{ pool: STOCHASTIC {fields} }}'


def windows(layer, x):
    """Yield the index of each window in the top, and its values."""
    (kh, kw), (sh, sw) = layer.kernel, layer.stride
    for n, c, i, j in np.ndindex(*layer_shape(layer, x)):
        yield (n, c, i, j), x[n, c, i * sh : i * sh + kh, j * sw : j * sw + kw]


def layer_shape(layer, x):
    return (*x.shape[:2], layer.method.sum.shape[1], layer.method.sum.shape[2])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fields", FIELDS)
def test_the_test_phase_gives_means_weighted_by_the_values_themselves(shape, fields):
    x = distinct(*shape) + 0.6
    it = OneLayer(text(fields), x, context=Context(phase=TEST))
    (y,) = it.forward()
    for index, values in windows(it.layer, x):
        assert y[index] == pytest.approx((values**2).sum() / values.sum(), rel=1e-12)
    check_gradients(text(fields), x, context=Context(phase=TEST))


def test_windows_of_zeros_give_zero_in_both_phases():
    for phase in (0, 1):
        it = OneLayer(text(), np.zeros((1, 1, 4, 4)), context=Context(phase=phase))
        assert not it.forward()[0].any()
        assert np.isfinite(it.backward(1)[0]).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fields", FIELDS)
def test_training_draws_one_of_the_windows_values_which_gets_the_gradient(shape, fields):
    x = distinct(*shape) + 0.6
    it = OneLayer(text(fields), x)
    (y,) = it.forward()
    dy = distinct(*y.shape, seed=1)
    (dx,) = it.backward(dy)
    expected = np.zeros(shape)
    for value, gradient in zip(y.reshape(-1), dy.reshape(-1), strict=True):
        assert (x == value).sum() == 1
        expected[x == value] += gradient
    np.testing.assert_allclose(dx, expected, rtol=1e-12, atol=1e-14)
    test = OneLayer(text(fields), x, context=Context(phase=TEST))
    test.forward()
    for index, values in windows(test.layer, x):
        assert y[index] in values


def test_values_are_drawn_in_proportion_to_themselves():
    x = np.tile([[1.0, 2], [3, 4]], (100, 100))[None, None]
    (y,) = OneLayer(text(), x).forward()
    for value in (1, 2, 3, 4):
        p = value / 10
        # Six standard deviations of the mean of 10,000 draws.
        assert abs((y == value).mean() - p) <= 6 * np.sqrt(p * (1 - p) / 10_000)


def test_each_batch_draws_other_values():
    it = OneLayer(text(), distinct(2, 3, 6, 6) + 0.6)
    (first,) = it.forward()
    it.context.batch_number += 1
    assert (it.forward()[0] != first).any()
    it.context.batch_number -= 1
    np.testing.assert_array_equal(it.forward()[0], first)


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_ranks_together_draw_what_one_would(ranks):
    x = distinct(5, 3, 6, 5) + 0.6
    (whole,) = OneLayer(text(), x, context=contexts(5, 1)[0]).forward()
    shares = [OneLayer(text(), x[rows(context)], context=context).forward()[0] for context in contexts(5, ranks)]
    np.testing.assert_array_equal(np.concatenate(shares), whole)
