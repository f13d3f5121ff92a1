"""Deconvolution against plain sums, the convolution it turns round, and finite differences."""

from itertools import product

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct
from hypothesis import given
from hypothesis import strategies as st

from scaffe.errors import NetError, ShapeError
from scaffe.layers import base_convolution

FILLERS = 'weight_filler { type: "gaussian" } bias_filler { type: "gaussian" }'
CASES = [
    ((2, 3, 4, 3), 2, "kernel_size: 3"),
    ((2, 4, 3, 2), 6, "kernel_size: 4 stride: 2 pad: 1 group: 2"),
    ((1, 2, 3, 4), 2, "kernel_h: 2 kernel_w: 3 stride_h: 3 stride_w: 1 pad_h: 0 pad_w: 1"),
    ((3, 2, 2, 3), 3, "kernel_size: 2 dilation: 2 bias_term: false"),
    ((2, 4, 3, 3), 4, "kernel_size: 2 stride: 2 group: 4"),
    ((2, 3, 4), 2, "kernel_size: 3 stride: 2"),
    ((1, 2, 2, 3, 2), 2, "kernel_size: 2 stride: 2 pad: 1"),
    ((2, 3, 4, 4), 5, "kernel_size: 1"),
    ((2, 2, 3, 4), 2, "axis: 2 kernel_size: 3"),
]


def text(outputs, fields, kind="Deconvolution"):
    return f'type: "{kind}" convolution_param {{ num_output: {outputs} {fields} {FILLERS} }}'


def deconvolve(x, weights, layer):
    """Return what each value of x spreads over y, value by value; channels on axis 1."""
    outputs, group = layer.outputs // layer.group, x.shape[1] // layer.group
    axes = zip(x.shape[2:], layer.kernel, layer.stride, layer.dilation, strict=True)
    size = [s * (n - 1) + d * (k - 1) + 1 for n, k, s, d in axes]
    y = np.zeros((len(x), layer.outputs, *size))
    for n, c, *at in np.ndindex(*x.shape):
        for o, place in product(range(outputs), np.ndindex(*layer.kernel)):
            to = [s * a + d * p for s, a, d, p in zip(layer.stride, at, layer.dilation, place, strict=True)]
            y[(n, c // group * outputs + o, *to)] += x[(n, c, *at)] * weights[(c, o, *place)]
    inside = (slice(p, n - p) for p, n in zip(layer.pad, size, strict=True))
    return y[(..., *inside)]


@pytest.mark.parametrize(("shape", "outputs", "fields"), CASES[:-1])
def test_each_value_spreads_the_weights_over_a_window(shape, outputs, fields):
    x = distinct(*shape)
    it = OneLayer(text(outputs, fields), x)
    expected = deconvolve(x, it.layer.blobs[0].array, it.layer)
    if len(it.layer.blobs) > 1:
        expected += it.layer.blobs[1].array.reshape(-1, *[1] * (len(shape) - 2))
    np.testing.assert_allclose(it.forward()[0], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("shape", "outputs", "fields"), CASES)
def test_gradients_agree_with_finite_differences(shape, outputs, fields):
    check_gradients(text(outputs, fields), distinct(*shape))


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(0, 1))
def test_it_is_the_backward_pass_of_the_convolution_with_its_weights(images, inputs, group, kernel, stride, pad):
    fields = f"kernel_size: {kernel + pad} stride: {stride} pad: {pad} group: {group} bias_term: false"
    x = distinct(images, inputs * group, 3, 2)
    it = OneLayer(text(2 * group, fields), x)
    (y,) = it.forward()
    turned = OneLayer(text(inputs * group, fields, "Convolution"), np.zeros(y.shape))
    turned.layer.blobs[0].array[...] = it.layer.blobs[0].array
    turned.forward()
    np.testing.assert_allclose(turned.backward(x)[0], y, rtol=1e-12, atol=1e-12)


def test_chunks_of_the_batch_give_the_same_as_the_whole(monkeypatch):
    results = []
    for limit in (1 << 30, 1):
        monkeypatch.setattr(base_convolution.BaseConvolution, "column_bytes", limit)
        it = OneLayer(text(2, "kernel_size: 3 stride: 2"), distinct(5, 3, 3, 4))
        (y,) = it.forward()
        results.append((y, it.backward(distinct(*y.shape, seed=1))[0], *(blob.diff_array for blob in it.layer.blobs)))
    for whole, chunked in zip(*results, strict=True):
        np.testing.assert_allclose(chunked, whole, rtol=1e-12, atol=1e-12)


def test_two_bottoms_share_the_weights_and_add_up_their_gradients():
    check_gradients(text(2, "kernel_size: 2"), distinct(2, 2, 3, 3), distinct(2, 2, 3, 3, seed=1), tops=2)


def test_parameters_that_do_not_learn_keep_their_gradients():
    it = OneLayer(text(2, "kernel_size: 2"), distinct(2, 2, 3, 3))
    it.layer.param_propagate_down = [False, False]
    it.forward()
    assert it.backward(np.ones((2, 2, 4, 4)))[0].any()
    assert not any(blob.diff_array.any() for blob in it.layer.blobs)


def test_groups_and_pads_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match="layer 'it'.*group 2 doesn't divide 3 channels"):
        OneLayer(text(2, "kernel_size: 2 group: 2"), distinct(1, 3, 2, 2))
    with pytest.raises(ShapeError, match="layer 'it'.*group 2 doesn't divide 3 num_output"):
        OneLayer(text(3, "kernel_size: 2 group: 2"), distinct(1, 2, 2, 2))
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(0, 1\).*\(1, 1, 1, 2\)"):
        OneLayer(text(1, "kernel_size: 2 pad: 1"), distinct(1, 1, 1, 2))
    with pytest.raises(NetError, match="layer 'it'.*num_output"):
        OneLayer(text(0, "kernel_size: 2"), distinct(1, 1, 2, 2))
