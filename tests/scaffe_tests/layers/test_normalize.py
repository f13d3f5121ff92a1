"""Normalize against numpy, finite differences, and itself on several ranks' rows."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, contexts, distinct, rows

from scaffe.errors import ShapeError


def text(across, shared, more=""):
    flags = f"across_spatial: {str(across).lower()} channel_shared: {str(shared).lower()}"
    return f'type: "Normalize" norm_param {{ {flags} {more} }}'


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 2, 2)])
def test_values_are_divided_by_their_norm_and_scaled(across, shared, shape):
    x = distinct(*shape)
    it = OneLayer(text(across, shared, "scale_filler { value: 20 } eps: 0.015625"), x)
    (scale,) = (blob.array for blob in it.layer.blobs)
    assert scale.shape == (() if shared else (3,)) and (scale == 20).all()
    scale[...] = 2 if shared else [1, 2, 3]
    norm = np.sqrt((x**2).sum(axis=tuple(range(1, x.ndim)) if across else 1, keepdims=True) + 0.015625)
    np.testing.assert_allclose(it.forward()[0], x / norm * scale.reshape(1, -1, *[1] * (x.ndim - 2)), rtol=1e-12)
    check_gradients(text(across, shared), x)


def test_the_scale_is_1_at_first():
    assert OneLayer(text(False, True), distinct(1, 2)).layer.blobs[0].array == 1


def test_a_pixel_of_zeros_stays_0_and_has_a_gradient():
    it = OneLayer(text(False, False), np.zeros((1, 2, 3)))
    np.testing.assert_array_equal(it.forward()[0], 0)
    assert np.isfinite(it.backward(np.ones((1, 2, 3)))[0]).all()


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_of_the_scale_add_up_over_ranks(ranks):
    x, dy = distinct(5, 3, 2), distinct(5, 3, 2, seed=1)

    def diff(context=None, part=slice(None)):
        it = OneLayer(text(False, False), x[part], context=context)
        it.forward()
        it.backward(dy[part])
        return it.layer.blobs[0].diff_array

    parts = [diff(context, rows(context)) for context in contexts(5, ranks)]
    np.testing.assert_allclose(sum(parts), diff(), rtol=1e-12)


def test_another_number_of_channels_is_refused():
    it = OneLayer(text(False, False), distinct(1, 3, 2))
    it.bottom[0].reshape(1, 4, 2)
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(1, 4, 2\), but there are scales for 3 channels"):
        it.layer.reshape(it.bottom, it.top)


def test_no_samples_give_none():
    """As behind a proposal layer that found nothing."""
    it = OneLayer(text(False, False), np.empty((0, 3, 2, 2)))
    (y,) = it.forward()
    assert y.size == 0
    assert it.backward(y)[-1].size == 0
