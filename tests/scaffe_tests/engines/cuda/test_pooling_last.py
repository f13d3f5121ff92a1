"""Kernels of pooling channels last against plain numpy: ties, edges, NaN, windows with kernels of their own."""

import numpy as np
import pytest
from both_engines import build
from cudnn_gpu import gpu_with
from test_typed_blobs import convolution, layer

SIZES = (7, 6), (8, 9), (3, 3), (2, 5)
CHANNELS = 8  # a pack of bfloat16, and two of float32
WINDOWS = [(3, 2, 0), (3, 2, 1), (3, 2, 2), (2, 2, 0), (2, 2, 1), (3, 1, 0), (3, 1, 1), (3, 1, 2), (4, 3, 1)]


def pooled_net(kernel, stride, pad, method, numbers, size):
    fields = f"kernel_size: {kernel} stride: {stride} pad: {pad} pool: {method}"
    copies = "num_output: 8 kernel_size: 1 bias_term: false"
    text = convolution("in", "x0", "a", copies) + layer("pool", "Pooling", "a", "p", f"pooling_param {{ {fields} }}")
    net = build(text + convolution("out", "p", "y", copies), (2, CHANNELS, *size), engine="auto", gpu=gpu_with(),
                numbers=numbers)  # fmt: skip
    for name in ("in", "out"):
        net.params[name][0].data[...] = np.eye(CHANNELS).reshape(CHANNELS, CHANNELS, 1, 1)
    return net


def windows_of(size, kernel, stride, pad):
    """Yield each window's pixels and its length with the padding, as Caffe has them."""
    out = -(-(size + 2 * pad - kernel) // stride) + 1
    out -= bool(pad) and (out - 1) * stride >= size + pad
    for i in range(out):
        begin = i * stride - pad
        yield range(max(begin, 0), min(begin + kernel, size)), min(begin + kernel, size + pad) - begin


def expected(x, dy, kernel, stride, pad, method):
    """Return the pooled pictures, and the gradient of x: window by window, in float64."""
    rows, columns = ([*windows_of(size, kernel, stride, pad)] for size in x.shape[2:])
    y, dx = np.zeros((*x.shape[:2], len(rows), len(columns))), np.zeros(x.shape)
    for r, (high, height) in enumerate(rows):
        for c, (wide, width) in enumerate(columns):
            window = x[:, :, high.start : high.stop, wide.start : wide.stop]
            gradient = dx[:, :, high.start : high.stop, wide.start : wide.stop]
            if method == "AVE":
                y[:, :, r, c] = window.sum(axis=(2, 3)) / (height * width)
                gradient += dy[:, :, r, c, None, None] / (height * width)
            else:
                flat = window.reshape(*x.shape[:2], -1)
                y[:, :, r, c] = flat.max(axis=-1)
                first = np.arange(flat.shape[-1]) == flat.argmax(axis=-1)[..., None]
                gradient += dy[:, :, r, c, None, None] * first.reshape(window.shape)
    return y, dx


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize("numbers", ["bf16", "tf32"])
@pytest.mark.parametrize(("kernel", "stride", "pad"), WINDOWS)
def test_windows_have_numpys_numbers(kernel, stride, pad, numbers, method):
    rng = np.random.default_rng(0)
    for size in SIZES:
        if min(size) + 2 * pad < kernel:
            continue
        net = pooled_net(kernel, stride, pad, method, numbers, size)
        x = net.blobs["x0"].data[...] = rng.integers(-2, 2, net.blobs["x0"].shape)  # many equal values
        net.forward()
        dy = net.blobs["y"].diff[...] = rng.integers(-2, 3, net.blobs["y"].shape)
        net.backward()
        assert net.blobs["p"].values.home is not None
        tolerance = 2**-7 if numbers == "bf16" and method == "AVE" else 1e-6
        results = net.blobs["y"].data, net.blobs["x0"].diff
        for found, right in zip(results, expected(x, dy, kernel, stride, pad, method), strict=True):
            np.testing.assert_allclose(found, right, rtol=tolerance, atol=2 * tolerance)


@pytest.mark.parametrize("numbers", ["bf16", "tf32"])
@pytest.mark.parametrize(("kernel", "stride", "pad"), WINDOWS)
def test_a_window_passes_what_is_no_number_on(kernel, stride, pad, numbers):
    """Also where padding lies in front; the gradient goes to a pixel of the window."""
    net = pooled_net(kernel, stride, pad, "MAX", numbers, (7, 6))
    xp, number = net.engine.gpu.xp, [one.type for one in net.layers].index("Pooling")
    net.forward()
    for value in (-np.inf, np.inf, np.nan):
        x = np.full(net.blobs["a"].shape, value, np.float32)
        x[0, 0] = 1
        net.blobs["a"].values.home.load(xp.asarray(x))
        net.forward_layer(number)
        y = net.blobs["p"].data.copy()
        np.testing.assert_array_equal(y[0, 0], 1)
        np.testing.assert_array_equal(y[1], np.full(y[1].shape, value, np.float32))
        net.blobs["p"].diff_values.home.load(xp.asarray(np.ones(y.shape, np.float32)))
        net.backward_layer(number)
        assert (net.blobs["a"].diff.sum(axis=(2, 3)) == np.prod(y.shape[2:])).all()
