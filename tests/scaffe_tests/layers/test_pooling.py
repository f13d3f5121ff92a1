"""Pooling against plain loops and finite differences."""

from math import ceil, floor

import numpy as np
import pytest
from google.protobuf import text_format
from gradient_check import OneLayer, check_gradients, distinct
from hypothesis import given
from hypothesis import strategies as st
from strict_arrays import a_gpu

import scaffe
from scaffe import engines
from scaffe.errors import NetError, ShapeError
from scaffe.proto import NetParameter

SHAPES = [(2, 3, 6, 5), (1, 1, 7, 7), (3, 2, 4, 9), (1, 2, 3, 3)]
FIELDS = [
    "kernel_size: 2 stride: 2",
    "kernel_size: 3 stride: 2",
    "kernel_size: 3 stride: 2 pad: 1",
    "kernel_size: 3 stride: 2 pad: 2",
    "kernel_size: 3",
    "kernel_size: 3 stride: 2 round_mode: FLOOR",
    "kernel_size: 2 stride: 3 round_mode: FLOOR",
    "kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 2 pad_h: 0 pad_w: 1",
    "kernel_size: 1",
    "global_pooling: true",
]


def text(method, fields):
    return f'type: "Pooling" pooling_param {{ pool: {method} {fields} }}'


def windows(size, kernel, stride, pad, rounding, clip):
    """Return the first pixel and the end, in the padded picture, of each window on an axis, as Caffe has them."""
    count = rounding((size + 2 * pad - kernel) / stride) + 1
    if clip and (count - 1) * stride >= size + pad:
        count -= 1
    starts = [i * stride - pad for i in range(count)]
    return [(start, min(start + kernel, size + pad)) for start in starts]


def pool(x, layer):
    """Return largest values, their indices, and means, window by window."""
    rounding = floor if layer.param.pooling_param.round_mode else ceil
    kernel = layer.kernel or x.shape[2:]
    axes = zip(x.shape[2:], kernel, layer.stride, layer.pad, strict=True)
    rows, columns = (windows(*numbers, rounding, clip=any(layer.pad)) for numbers in axes)
    out = (*x.shape[:2], len(rows), len(columns))
    largest, index, mean = np.empty(out), np.empty(out), np.empty(out)
    for n, c, i, j in np.ndindex(*out):
        (top, bottom), (left, right) = rows[i], columns[j]
        inside = [
            (x[n, c, h, w], h * x.shape[3] + w)
            for h in range(max(0, top), min(bottom, x.shape[2]))
            for w in range(max(0, left), min(right, x.shape[3]))
        ]
        largest[n, c, i, j], index[n, c, i, j] = max(inside, key=lambda pixel: pixel[0])  # the first of equals
        mean[n, c, i, j] = sum(value for value, _ in inside) / ((bottom - top) * (right - left))
    return largest, index, mean


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fields", FIELDS)
def test_windows_give_their_largest_value_and_its_index(shape, fields):
    x = distinct(*shape)
    it = OneLayer(text("MAX", fields), x, tops=2)
    largest, index, _ = pool(x, it.layer)
    y, mask = it.forward()
    np.testing.assert_array_equal(y, largest)
    np.testing.assert_array_equal(mask, index)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fields", FIELDS)
def test_windows_give_their_mean(shape, fields):
    x = distinct(*shape)
    it = OneLayer(text("AVE", fields), x)
    np.testing.assert_allclose(it.forward()[0], pool(x, it.layer)[2], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("method", ["MAX", "AVE"])
def test_gradient_agrees_with_finite_differences(shape, fields, method):
    check_gradients(text(method, fields), distinct(*shape))


@st.composite
def geometries(draw):
    """Draw size, kernel, stride and pad of an axis, such that no window lies outside the picture."""
    kernel = draw(st.integers(1, 4))
    stride, pad = draw(st.integers(1, kernel)), draw(st.integers(0, kernel - 1))
    return draw(st.integers(max(1, kernel - 2 * pad), 8)), kernel, stride, pad


@given(st.sampled_from(["MAX", "AVE"]), st.integers(1, 3), st.integers(1, 2), geometries(), geometries())
def test_any_geometry_gives_what_the_loops_give(method, images, channels, rows, columns):
    fields = " ".join(
        f"{name}_h: {h} {name}_w: {w}"
        for name, h, w in zip(("kernel", "stride", "pad"), rows[1:], columns[1:], strict=True)
    )
    x = distinct(images, channels, rows[0], columns[0])
    it = OneLayer(text(method, fields), x)
    largest, _, mean = pool(x, it.layer)
    np.testing.assert_allclose(it.forward()[0], largest if method == "MAX" else mean, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("size", "fields", "out"),
    [
        ((6, 6), "kernel_size: 3 stride: 2", (3, 3)),  # rounded up
        ((6, 6), "kernel_size: 3 stride: 2 round_mode: FLOOR", (2, 2)),
        ((4, 4), "kernel_size: 2 stride: 2 pad: 1", (3, 3)),
        ((3, 3), "kernel_size: 2 stride: 3 pad: 1", (2, 2)),
        ((4, 4), "kernel_size: 3 stride: 3 pad: 1", (2, 2)),
        ((5, 5), "kernel_size: 2 stride: 2 pad: 1", (3, 3)),  # a fourth window would start beyond the picture
        ((4, 6), "kernel_h: 2 kernel_w: 3 stride_h: 2 stride_w: 2 pad_h: 1 pad_w: 0", (3, 3)),
    ],
)
def test_sizes_are_rounded_up_and_clipped_as_caffe_does(size, fields, out):
    assert OneLayer(text("MAX", fields), np.zeros((1, 1, *size))).top[0].shape == (1, 1, *out)


def test_the_first_of_equal_values_gets_the_gradient():
    it = OneLayer(text("MAX", "kernel_size: 3 stride: 2 pad: 1"), np.zeros((1, 1, 3, 3)), tops=2)
    _, mask = it.forward()
    np.testing.assert_array_equal(mask[0, 0], [[0, 1], [3, 4]])
    (dx,) = it.backward([[[[1, 2], [3, 4]]]], 0)
    np.testing.assert_array_equal(dx[0, 0], [[1, 2, 0], [3, 4, 0], [0, 0, 0]])


@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("gpu", [None, a_gpu()], ids=["on the host", "on a GPU"])
def test_of_equal_values_the_first_of_each_window_wins_on_every_engine(fields, gpu):
    x, rng = np.random.default_rng(0).integers(0, 2, (2, 3, 6, 9)), np.random.default_rng(1)
    inputs = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 6 dim: 9 } } }'
    layer = f'layer {{ name: "it" {text("MAX", fields)} bottom: "x" top: "y" top: "w" }}'
    param = text_format.Parse(f"force_backward: true {inputs} {layer}", NetParameter())
    net = scaffe.Net(param, scaffe.TRAIN, engine=engines.create(gpu=gpu))
    found = net.forward(x=x)
    largest, index, _ = pool(x, net.layers[1])
    np.testing.assert_array_equal(found["y"], largest)
    np.testing.assert_array_equal(found["w"], index)
    dy = rng.integers(1, 9, largest.shape)
    expected = np.zeros((2, 3, 54))
    for place in np.ndindex(*dy.shape):
        expected[(*place[:2], int(index[place]))] += dy[place]
    np.testing.assert_array_equal(net.backward(y=dy)["x"], expected.reshape(x.shape))


@pytest.mark.parametrize("value", [-np.inf, np.nan])
def test_pictures_without_a_largest_value_still_have_winners_inside(value):
    it = OneLayer(text("MAX", "kernel_size: 3 stride: 2 pad: 2"), np.full((2, 1, 5, 4), value), tops=2)
    y, mask = it.forward()
    np.testing.assert_array_equal(y, value)
    assert ((mask >= 0) & (mask < 20)).all()
    assert it.backward(np.ones(y.shape), 0)[0].sum() == y.size


def test_an_in_place_layer_behind_does_not_disturb_the_gradient():
    it = OneLayer(text("MAX", "kernel_size: 2 stride: 2"), distinct(2, 2, 4, 4))
    it.forward()
    expected = it.backward(np.ones((2, 2, 2, 2)))[0]
    it.forward()
    it.top[0].array[...] = 0
    np.testing.assert_array_equal(it.backward(np.ones((2, 2, 2, 2)))[0], expected)


def test_a_window_wholly_outside_the_picture_is_refused():
    with pytest.raises(ShapeError, match=r"outside.*\(1, 1, 5, 5\).*FLOOR"):
        OneLayer(text("MAX", "kernel_size: 1 stride: 3"), np.zeros((1, 1, 5, 5)))


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3)])
def test_a_bottom_without_four_axes_is_refused(shape):
    with pytest.raises(ShapeError, match="4 axes"):
        OneLayer(text("MAX", "kernel_size: 2"), np.zeros(shape))


def test_a_kernel_larger_than_the_picture_is_refused_with_both_shapes():
    with pytest.raises(ShapeError, match=r"\(5, 5\).*\(1, 1, 3, 3\)"):
        OneLayer(text("MAX", "kernel_size: 5"), np.zeros((1, 1, 3, 3)))


@pytest.mark.parametrize(
    ("method", "fields", "tops"),
    [
        ("STOCHASTIC", "kernel_size: 2 pad: 1", 1),
        ("STOCHASTIC", "kernel_size: 2", 2),
        ("AVE", "kernel_size: 2", 2),
        ("MAX", "", 1),
        ("MAX", "kernel_h: 2", 1),
        ("MAX", "kernel_size: 2 kernel_h: 2 kernel_w: 2", 1),
        ("MAX", "kernel_size: 2 pad: 2", 1),
        ("MAX", "kernel_size: 2 stride: 0", 1),
        ("MAX", "kernel_size: 2 global_pooling: true", 1),
        ("MAX", "pad: 1 global_pooling: true", 1),
    ],
)
def test_fields_that_mean_nothing_are_refused(method, fields, tops):
    with pytest.raises(NetError, match="layer 'it'"):
        OneLayer(text(method, fields), np.zeros((1, 1, 4, 4)), tops=tops)
