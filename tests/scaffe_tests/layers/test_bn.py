"""BN of SegNet and of PSPNet against numpy, finite differences, and stored weights of both."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.context import TEST, TRAIN, Context
from scaffe.errors import NetError, ShapeError

LEARN = "scale_filler { value: 2 } shift_filler { value: 0.5 }"
INFERENCE = f"{LEARN} bn_mode: INFERENCE"
PSPNETS = "slope_filler { value: 2 } bias_filler { value: 0.5 } momentum: 0.75"


def text(fields):
    return f'type: "BN" bn_param {{ {fields} }}'


def spread(values, x):
    return np.reshape(values, (1, -1, *[1] * (x.ndim - 2)))


def normalised(x, eps):
    axes = (0, *range(2, x.ndim))
    centred = x - x.mean(axis=axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + eps)


@pytest.mark.parametrize("phase", [TRAIN, TEST])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 2, 2)])
@pytest.mark.parametrize("in_place", [False, True])
def test_segnets_reads_the_batch_in_both_phases(phase, shape, in_place):
    x = distinct(*shape)
    it = OneLayer(text(LEARN), x, context=Context(phase=phase), in_place=in_place)
    assert [blob.shape for blob in it.layer.blobs] == [(1, 3, 1, 1)] * 2
    assert [float(blob.array.mean()) for blob in it.layer.blobs] == [2, 0.5]
    np.testing.assert_allclose(it.forward()[0], 2 * normalised(x, 1e-9) + 0.5, rtol=1e-9)


def test_segnets_for_inference_scales_and_shifts():
    x = distinct(2, 3, 2, 2)
    it = OneLayer(text(INFERENCE), x)
    scale, shift = (blob.array for blob in it.layer.blobs)
    scale[0, :, 0, 0], shift[0, :, 0, 0] = [1, 2, 3], [4, 5, 6]
    np.testing.assert_allclose(it.forward()[0], x * scale + shift)


def test_pspnets_remembers_mean_and_variance_and_reads_them_in_tests():
    x = distinct(4, 3, 2)
    it = OneLayer(text(PSPNETS), x, context=Context(phase=TRAIN))
    assert it.layer.statistics == (2, 3)
    scale, shift, mean, variance = (blob.array for blob in it.layer.blobs)
    mean[...], variance[...] = 4, 8
    np.testing.assert_allclose(it.forward()[0], 2 * normalised(x, 1e-5) + 0.5, rtol=1e-6)
    np.testing.assert_allclose(mean.reshape(-1), 3 + 0.25 * x.mean(axis=(0, 2)))
    np.testing.assert_allclose(variance.reshape(-1), 6 + 0.25 * x.var(axis=(0, 2)))
    tested = OneLayer(text(PSPNETS), x, context=Context(phase=TEST))
    for blob, values in zip(tested.layer.blobs, (scale, shift, mean, variance), strict=True):
        blob.array[...] = values
    expected = 2 * (x - spread(mean, x)) / np.sqrt(spread(variance, x) + 1e-5) + 0.5
    np.testing.assert_allclose(tested.forward()[0], expected, rtol=1e-6)


def test_frozen_it_reads_and_keeps_what_is_stored_and_its_scale():
    x = distinct(4, 3, 2)
    it = OneLayer(text(f"{PSPNETS} frozen: true"), x, context=Context(phase=TRAIN))
    assert [float(blob.array.mean()) for blob in it.layer.blobs] == [2, 0.5, 0, 1]
    np.testing.assert_allclose(it.forward()[0], 2 * x / np.sqrt(1 + 1e-5) + 0.5, rtol=1e-6)
    (dx,) = it.backward(np.ones_like(x))
    np.testing.assert_allclose(dx, 2 / np.sqrt(1 + 1e-5), rtol=1e-6)
    assert [float(abs(blob.diff_array).sum()) for blob in it.layer.blobs] == [0] * 4


@pytest.mark.parametrize("fields", [LEARN, INFERENCE])
@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 2, 2)])
def test_gradients_of_segnets(fields, shape):
    check_gradients(text(fields), distinct(*shape))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("phase", [TRAIN, TEST])
def test_gradients_of_pspnets(phase, in_place):
    """The stored mean and variance change in each pass, so that finite differences leave them alone."""
    x, dy, step = distinct(4, 3, 2), distinct(4, 3, 2, seed=1), 1e-5

    def built(values):
        it = OneLayer(text(PSPNETS), values, context=Context(phase=phase), in_place=in_place)
        for blob, fill in zip(it.layer.blobs, (2, 0.5, 0.1, 3), strict=True):
            blob.array[...] = fill
        return it

    it = built(x)
    it.forward()
    (dx,) = it.backward(dy)
    for index in np.ndindex(x.shape):
        sides = []
        for sign in (1, -1):
            moved = x.copy()
            moved[index] += sign * step
            sides.append((built(moved).forward()[0] * dy).sum())
        assert dx[index] == pytest.approx((sides[0] - sides[1]) / (2 * step), abs=1e-6)
    np.testing.assert_allclose(it.layer.blobs[1].diff_array.reshape(-1), dy.sum(axis=(0, 2)))


@pytest.mark.parametrize(("fields", "said"), [("", "none of these"), (f"{LEARN} frozen: true", "fields of both")])
def test_a_bn_of_no_or_of_two_forks_is_refused(fields, said):
    with pytest.raises(NetError, match=f"layer 'it'.*SegNet's and ENet's with scale_filler.*bn_param has {said}"):
        OneLayer(text(fields), distinct(1, 2))


@pytest.mark.parametrize("fields", ["eps: -1", "eps: nan", "momentum: 2", "momentum: -0.5"])
def test_an_eps_or_momentum_that_gives_no_statistics_is_refused(fields):
    with pytest.raises(NetError, match="layer 'it'.*needs eps of 0 or more and momentum from 0 to 1"):
        OneLayer(text(fields), distinct(1, 2))


def test_another_number_of_channels_is_refused():
    it = OneLayer(text(LEARN), distinct(2, 3))
    it.bottom[0].reshape(2, 4)
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(2, 4\), but the scales are for 3 channels"):
        it.layer.reshape(it.bottom, it.top)
