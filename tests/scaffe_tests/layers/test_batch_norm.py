"""BatchNorm against its formulas, finite differences, Caffe's running sums, and itself in place."""

import json

import numpy as np
import pytest
from gradient_check import OneLayer, assert_gradient, distinct, numeric_gradient

import scaffe
from scaffe.context import TEST, TRAIN, Context
from scaffe.errors import NetError, ShapeError
from scaffe.proto import NetParameter

SHAPES = [(4, 3), (5, 3, 2), (2, 3, 2, 4), (6,)]
EPS = 0.015625  # a float32
SUMS = 'type: "BatchNorm" batch_norm_param { use_global_stats: true eps: 0.015625 }'
OWN = 'type: "BatchNorm" batch_norm_param { eps: 0.015625 moving_average_fraction: 0.75 }'


def by_channel(x):
    """Return x as (channels x values of one)."""
    return x.reshape(1, -1) if x.ndim == 1 else np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)


def with_sums(text, x, **options):
    """Return the layer with running sums that it might have after a while."""
    it = OneLayer(text, x, **options)
    count = it.layer.blobs[0].count
    for blob, values in zip(it.layer.blobs, (distinct(count), distinct(count, seed=1) + 2, [1.5]), strict=True):
        blob.array[...] = values
    return it


@pytest.mark.parametrize("shape", SHAPES)
def test_each_channel_gets_mean_0_and_variance_1(shape):
    x = distinct(*shape)
    (y,) = OneLayer(OWN, x).forward()
    for ours, channel in zip(by_channel(y), by_channel(x), strict=True):
        np.testing.assert_allclose(ours, (channel - channel.mean()) / np.sqrt(channel.var() + EPS), rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("text", [OWN, SUMS])
def test_gradient_agrees_with_finite_differences(shape, text):
    weights = distinct(*shape, seed=1)
    it = with_sums(text, distinct(*shape))
    it.forward()
    (dx,) = it.backward(weights)
    assert_gradient(dx, numeric_gradient(it, [weights], it.bottom[0].array), "bottom 0")
    assert not any(blob.diff_array.any() for blob in it.layer.blobs)


@pytest.mark.parametrize("text", [OWN, SUMS])
def test_in_place_gives_the_same_values_and_gradients(text):
    x, dy = distinct(4, 3, 2), distinct(4, 3, 2, seed=1)
    apart, in_place = with_sums(text, x), with_sums(text, x, in_place=True)
    np.testing.assert_array_equal(in_place.forward(), apart.forward())
    in_place.top[0].array[...] = np.nan  # as a layer above that works in place may do
    np.testing.assert_array_equal(in_place.backward(dy), apart.backward(dy))


def test_sums_fade_and_take_up_the_mean_and_the_variance_without_its_bias():
    x, fraction = distinct(4, 3, 2), 0.75
    it = with_sums(OWN, x)
    means, variances, weight = (blob.array.copy() for blob in it.layer.blobs)
    it.forward()
    np.testing.assert_allclose(it.layer.blobs[0].array, fraction * means + by_channel(x).mean(1), rtol=1e-12)
    np.testing.assert_allclose(it.layer.blobs[1].array, fraction * variances + by_channel(x).var(1, ddof=1), rtol=1e-12)
    np.testing.assert_allclose(it.layer.blobs[2].array, fraction * weight + 1, rtol=1e-12)


def test_a_single_value_a_channel_adds_no_variance():
    it = OneLayer(OWN, distinct(1, 3))
    it.forward()
    assert not it.layer.blobs[1].array.any()


@pytest.mark.parametrize(("phase", "text"), [(TEST, OWN), (TRAIN, SUMS)])
def test_sums_are_used_and_kept_in_the_test_phase_or_where_asked_for(phase, text):
    x = distinct(4, 3, 2)
    it = with_sums(text, x, context=Context(phase=phase))
    means, variances, weight = (blob.array.copy() for blob in it.layer.blobs)
    expected = (by_channel(x) - (means / weight)[:, None]) / np.sqrt((variances / weight)[:, None] + EPS)
    np.testing.assert_allclose(by_channel(it.forward()[0]), expected, rtol=1e-12)
    for blob, before in zip(it.layer.blobs, (means, variances, weight), strict=True):
        np.testing.assert_array_equal(blob.array, before)


def test_sums_without_weight_count_as_0():
    (y,) = OneLayer(SUMS, distinct(4, 3)).forward()
    np.testing.assert_allclose(y, distinct(4, 3) / EPS**0.5, rtol=1e-12)


def test_other_channels_than_the_sums_are_refused_with_both():
    it = OneLayer(OWN, distinct(2, 3))
    it.bottom[0].reshape(2, 4)
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(2, 4\).*3 channels"):
        it.layer.reshape(it.bottom, it.top)


def net(params):
    layers = [
        {"name": "in", "type": "Input", "top": ["x"], "input_param": {"shape": [{"dim": [4, 3]}]}},
        {"name": "bn", "type": "BatchNorm", "bottom": ["x"], "top": ["y"], "param": params},
    ]
    return scaffe.Net(NetParameter(layer=layers), scaffe.TRAIN)


def test_sums_do_not_learn_and_a_rate_for_them_is_refused():
    assert [p.rate for p in net([]).parameters] == [p.rate for p in net([{"lr_mult": 0}] * 3).parameters] == [0] * 3
    with pytest.raises(NetError, match="layer 'bn'.*blob 1.*lr_mult 1"):
        net([{"lr_mult": 0}, {"lr_mult": 1}])


@pytest.mark.parametrize("case", ["bn_train", "bn_train_batch1", "bn_batch_stats_in_test", "bn_test_phase"])
def test_sums_after_a_forward_pass_are_caffes(cases, case):
    folder = cases / "parity" / case
    meta, arrays = json.loads((folder / "meta.json").read_text()), np.load(folder / "arrays.npz")
    it = scaffe.Net(folder / "net.prototxt", getattr(scaffe, meta["phase"]))
    blobs = it.params["batchnorm"]
    for i, blob in enumerate(blobs):
        blob.data[...] = arrays[f"param_batchnorm_{i}"]
    it.blobs["x"].data[...] = arrays["in_x"]
    it.forward()
    for i, blob in enumerate(blobs):
        after = f"paramafter_batchnorm_{i}"
        expected = arrays[after if after in arrays else f"param_batchnorm_{i}"]
        np.testing.assert_allclose(blob.data, expected, rtol=1e-5)
