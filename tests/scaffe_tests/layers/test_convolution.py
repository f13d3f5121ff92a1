"""Convolution against plain loops and finite differences."""

from itertools import product

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError
from scaffe.layers import base_convolution

FILLERS = 'weight_filler { type: "gaussian" } bias_filler { type: "uniform" }'


def text(num_output, fields):
    return f'type: "Convolution" convolution_param {{ num_output: {num_output} {fields} {FILLERS} }}'


def convolve(x, weights, bias, stride, pad, dilation, group):
    """Return the convolution of x (N x C x H x W) by the definition."""
    images, channels, *size = x.shape
    outputs, _, *kernel = weights.shape
    axes = list(zip(size, kernel, stride, pad, dilation, strict=True))
    out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes]
    y = np.zeros((images, outputs, *out))
    for n, o, h, w in np.ndindex(*y.shape):
        y[n, o, h, w] = bias[o]
        first = o // (outputs // group) * (channels // group)
        for c, i, j in np.ndindex(*weights.shape[1:]):
            row, column = h * stride[0] - pad[0] + i * dilation[0], w * stride[1] - pad[1] + j * dilation[1]
            if 0 <= row < size[0] and 0 <= column < size[1]:
                y[n, o, h, w] += weights[o, c, i, j] * x[n, first + c, row, column]
    return y


@pytest.mark.parametrize(
    ("fields", "geometry"),
    [
        ("kernel_size: 3", ((1, 1), (0, 0), (1, 1), 1)),
        ("kernel_size: 3 pad: 1 stride: 2", ((2, 2), (1, 1), (1, 1), 1)),
        ("kernel_size: 2 dilation: 2 group: 2", ((1, 1), (0, 0), (2, 2), 2)),
        ("kernel_size: 3 pad: 2 group: 4", ((1, 1), (2, 2), (1, 1), 4)),
        ("kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 2 pad_h: 2 pad_w: 1", ((1, 2), (2, 1), (1, 1), 1)),
        ("kernel_size: 2 kernel_size: 1 stride: 3 stride: 1 dilation: 1 dilation: 2", ((3, 1), (0, 0), (1, 2), 1)),
        ("kernel_size: 1", ((1, 1), (0, 0), (1, 1), 1)),
        ("kernel_size: 1 stride: 2 group: 2", ((2, 2), (0, 0), (1, 1), 2)),
        ("kernel_size: 3 force_nd_im2col: true", ((1, 1), (0, 0), (1, 1), 1)),
    ],
)
@pytest.mark.parametrize("images", [1, 3])
def test_each_output_is_the_kernels_sum_over_its_window(fields, geometry, images):
    x = distinct(images, 4, 6, 5)
    it = OneLayer(text(4, fields), x)
    expected = convolve(x, *(blob.array for blob in it.layer.blobs), *geometry)
    (y,) = it.forward()
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)


GRADIENT_CASES = [
    ((2, 3, 5, 4), 2, "kernel_size: 3"),
    ((3, 2, 5, 4), 2, "kernel_size: 3 pad: 1 stride: 2"),
    ((1, 4, 5, 5), 4, "kernel_size: 2 dilation: 3 group: 2"),
    ((2, 3, 4, 3), 3, "kernel_size: 3 pad: 1 group: 3"),
    ((3, 2, 3, 3), 3, "kernel_size: 1"),
    ((2, 2, 3, 4), 3, "kernel_size: 1 stride: 2 bias_term: false"),
    ((2, 2, 7), 2, "kernel_size: 3 stride: 2 pad: 1"),
    ((2, 2, 3, 4, 2), 2, "kernel_size: 2 kernel_size: 3 kernel_size: 1 pad: 1 pad: 0 pad: 0"),
    ((2, 3, 2, 4, 3), 2, "kernel_size: 2 axis: 2"),
    ((3, 4), 2, ""),
]


@pytest.mark.parametrize(("shape", "outputs", "fields"), GRADIENT_CASES)
def test_gradients_agree_with_finite_differences(shape, outputs, fields):
    check_gradients(text(outputs, fields or "kernel_size: 1"), distinct(*shape))


@pytest.mark.parametrize("images", [1, 3, 5])
def test_chunks_of_the_batch_give_the_same_as_the_whole(monkeypatch, images):
    x, dy = distinct(5, 3, 6, 5), distinct(5, 2, 4, 3, seed=1)
    results = []
    for limit in (1 << 30, images * 4 * 27 * 12):
        monkeypatch.setattr(base_convolution.BaseConvolution, "column_bytes", limit)
        it = OneLayer(text(2, "kernel_size: 3"), x)
        assert len(list(it.layer._chunks())) == (1 if limit == 1 << 30 else -(-5 // images))
        y, dx = it.forward()[0], it.backward(dy)[0]
        results.append((y, dx, *(blob.diff_array for blob in it.layer.blobs)))
    for whole, chunked in zip(*results, strict=True):
        np.testing.assert_allclose(chunked, whole, rtol=1e-12, atol=1e-12)


def test_two_bottoms_share_the_weights_and_add_up_their_gradients():
    check_gradients(text(2, "kernel_size: 2"), distinct(2, 2, 3, 3), distinct(2, 2, 3, 3, seed=1), tops=2)


def test_a_bottom_that_needs_no_gradient_gets_none():
    it = OneLayer(text(2, "kernel_size: 2"), distinct(2, 2, 3, 3))
    it.bottom[0].diff_array[...] = 7
    it.forward()
    assert (it.backward(np.ones((2, 2, 2, 2)), down=[False])[0] == 7).all()
    assert all(blob.diff_array.any() for blob in it.layer.blobs)


def test_parameters_that_do_not_learn_keep_their_gradients():
    it = OneLayer(text(2, "kernel_size: 2"), distinct(2, 2, 3, 3))
    it.layer.param_propagate_down = [False, False]
    it.forward()
    assert it.backward(np.ones((2, 2, 2, 2)))[0].any()
    assert not any(blob.diff_array.any() for blob in it.layer.blobs)


def test_other_batch_and_picture_sizes_need_no_new_weights():
    it = OneLayer(text(2, "kernel_size: 3 pad: 1"), distinct(2, 2, 4, 4))
    it.forward()
    x = distinct(3, 2, 6, 5)
    it.bottom[0].array = x
    it.layer.reshape(it.bottom, it.top)
    expected = convolve(x, *(blob.array for blob in it.layer.blobs), (1, 1), (1, 1), (1, 1), 1)
    np.testing.assert_allclose(it.forward()[0], expected, rtol=1e-6)  # the reshaped top is float32


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("kernel_size: 5", r"\(5, 5\).*\(2, 4, 3, 6\)"),
        ("kernel_size: 2 dilation: 3", r"\(4, 4\).*\(2, 4, 3, 6\)"),
        ("kernel_size: 2 group: 3", "group 3 doesn't divide 4 channels"),
    ],
)
def test_shapes_that_do_not_meet_are_refused(fields, message):
    with pytest.raises(ShapeError, match="layer 'it'.*" + message):
        OneLayer(text(6, fields), distinct(2, 4, 3, 6))


def test_other_channels_than_the_weights_are_refused_with_both_shapes():
    it = OneLayer(text(2, "kernel_size: 2"), distinct(2, 3, 4, 4))
    it.bottom[0].reshape(2, 5, 4, 4)
    with pytest.raises(ShapeError, match=r"\(2, 5, 4, 4\).*\(2, 3, 2, 2\)"):
        it.layer.reshape(it.bottom, it.top)


@pytest.mark.parametrize(
    "fields",
    [
        "",
        "kernel_size: 0",
        "kernel_size: 2 stride: 0",
        "kernel_h: 2",
        "kernel_size: 2 kernel_h: 2 kernel_w: 2",
        "kernel_size: 2 kernel_size: 2 kernel_size: 2",
    ],
)
def test_kernels_that_mean_nothing_are_refused(fields):
    with pytest.raises(NetError, match="layer 'it'"):
        OneLayer(text(2, fields), distinct(2, 2, 4, 4))


@pytest.mark.parametrize(("fields", "mixes"), [("axis: 0", True), ("", False)])
def test_only_channels_on_axis_0_mix_samples(fields, mixes):
    it = OneLayer(text(2, "kernel_size: 1 " + fields), distinct(2, 2, 3))
    assert bool(it.layer.mixes_samples(it.bottom)) == mixes


def test_no_loop_over_images_or_pixels(monkeypatch):
    """The number of slices copied depends on the kernel and the number of chunks alone."""
    copied = []
    places = base_convolution.SlidingWindow.places
    monkeypatch.setattr(base_convolution.SlidingWindow, "places", lambda w: (copied.append(p) or p for p in places(w)))
    OneLayer(text(2, "kernel_size: 3"), distinct(7, 2, 6, 5)).forward()
    assert [place for place, _ in copied] == [(slice(None), i, j) for i, j in product(range(3), range(3))]
