"""BatchNorm of blobs that lie channels last, by its kernels, against numpy: sizes and values of all kinds."""

import fake_cublas
import numpy as np
import pytest
from both_engines import build
from cudnn_gpu import gpu_with
from test_typed_blobs import convolution, layer

from scaffe.engines.cuda.channels import BLOCKS, Channels

SHAPES = (1, 8, 1, 1), (2, 8, 3, 3), (3, 24, 5, 7), (2, 72, 9, 9), (1, 136, 4, 4), (3, 16, 40, 41)
EPS = 1e-3


def net_of(shape, numbers):
    """Return a net whose BatchNorm, Scale and ReLU read a blob of this shape, channels last."""
    copies = f"num_output: {shape[1]} kernel_size: 1 bias_term: false"
    text = convolution("in", "x0", "a", copies)
    text += layer("norm", "BatchNorm", "a", "b", f"batch_norm_param {{ eps: {EPS} }}")
    text += layer("scale", "Scale", "b", "b", "scale_param { bias_term: true }") + layer("relu", "ReLU", "b", "b")
    net = build(text + convolution("out", "b", "y", copies), shape, engine="auto", gpu=gpu_with(), numbers=numbers)
    for blob, values in zip(net.params["scale"], np.random.default_rng(1).standard_normal((2, shape[1])), strict=True):
        blob.data[...] = values
    return net


def run(net, x, dy):
    """Return y and dx of the three layers, and the gradients of factor and bias."""
    xp, a, b = net.engine.gpu.xp, net.blobs["a"], net.blobs["b"]
    net.forward()
    net.clear_param_diffs()
    a.values.home.load(xp.asarray(x))
    first = [one.type for one in net.layers].index("BatchNorm")
    for number in range(first, first + 3):
        net.forward_layer(number)
    y = b.data.copy()
    b.diff_values.home.load(xp.asarray(dy))
    for number in reversed(range(first, first + 3)):
        net.backward_layer(number)
    return [y, a.diff.copy(), *(blob.diff.copy() for blob in net.params["scale"])]


def expected(net, x, dy):
    axes = 0, 2, 3
    factor, bias = (blob.data.astype(np.float64)[:, None, None] for blob in net.params["scale"])
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    distance = x - x.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt((distance**2).mean(axes, keepdims=True) + EPS)
    y = distance * inverse * factor + bias
    gradient = np.where(y > 0, dy, 0)
    of_factor, of_bias = (gradient * distance * inverse).sum(axes), gradient.sum(axes)
    slope = (gradient * distance * inverse).mean(axes, keepdims=True)
    dx = (gradient - gradient.mean(axes, keepdims=True) - distance * inverse * slope) * inverse * factor
    return [np.maximum(y, 0), dx, of_factor, of_bias]


@pytest.mark.parametrize("numbers", ["bf16", "tf32"])
@pytest.mark.parametrize("shape", SHAPES)
def test_all_sizes_have_numpys_numbers(shape, numbers):
    rng, net = np.random.default_rng(0), net_of(shape, numbers)
    x, dy = (fake_cublas.rounded(rng.standard_normal(shape).astype(np.float32), 7) for _ in range(2))
    for found, right in zip(run(net, x, dy), expected(net, x, dy), strict=True):
        scale = max(np.abs(right).max(), 1)
        tolerance = 2**-8 if numbers == "bf16" and found.ndim == 4 else 2e-5
        np.testing.assert_allclose(found, right, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("shape", [(2, 8, 9, 9), (3, 40, 40, 41)])
def test_a_mean_far_from_0_costs_no_digits(shape):
    """Deviations are computed from what is near the mean; also where a chunk begins far from all other values."""
    rng, net = np.random.default_rng(0), net_of(shape, "tf32")
    x = 4096 + rng.integers(-8, 9, shape).astype(np.float32)
    x[0, 3, 0, 0] = 8192
    dy = rng.standard_normal(shape).astype(np.float32)
    for found, right in zip(run(net, x, dy), expected(net, x, dy), strict=True):
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-4 * np.abs(right).max())


def test_a_constant_channel_is_exactly_its_bias_and_repeats_bit_for_bit():
    shape = 3, 16, 20, 21
    net, rng = net_of(shape, "bf16"), np.random.default_rng(0)
    x, dy = (fake_cublas.rounded(rng.standard_normal(shape).astype(np.float32), 7) for _ in range(2))
    x[:, 5] = 3.140625
    first, second = run(net, x, dy), run(net, x, dy)
    bias = fake_cublas.rounded(net.params["scale"][1].data, 7)[5]
    np.testing.assert_array_equal(first[0][:, 5], max(bias, 0))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("rows", "channels", "last"), [(1, 8, 8), (64 * 112 * 112, 64, 8), (3136, 2048, 8), (7, 4, 4)])
def test_chunks_cover_all_rows_and_fill_no_more_blocks_than_a_gpu_runs(rows, channels, last):
    parts = Channels(rows, channels, 1, last)
    assert (parts.chunks - 1) * parts.size < rows <= parts.chunks * parts.size
    assert parts.across * parts.lanes * last >= channels
    assert parts.across * parts.chunks <= max(BLOCKS, parts.across)
