"""Im2col as a layer against the convolution whose columns it makes, plain loops, and finite differences."""

from itertools import product

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError

CASES = [
    ((2, 3, 5, 4), "kernel_size: 3 stride: 2 pad: 1"),
    ((2, 2, 5, 6), "kernel_h: 2 kernel_w: 3 dilation: 2"),
    ((1, 2, 5), "kernel_size: 2"),
    ((2, 1, 3, 4, 3), "kernel_size: 2 stride: 1 stride: 2 stride: 1"),
    ((2, 3, 3, 3), "kernel_size: 1"),
    ((3, 2, 4, 4), "axis: 2 kernel_size: 2"),
]


def text(fields):
    return f'type: "Im2col" convolution_param {{ {fields} }}'


@pytest.mark.parametrize(("shape", "fields"), CASES[:-1])
def test_each_position_shows_what_the_kernel_meets(shape, fields):
    x = distinct(*shape)
    it = OneLayer(text(fields), x)
    window = it.layer.window
    padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in window.pad)])
    expected = np.empty((*shape[:2], *window.kernel, *window.out))
    for place, out in product(np.ndindex(*window.kernel), np.ndindex(*window.out)):
        at = [p * d + o * s for p, d, o, s in zip(place, window.dilation, out, window.stride, strict=True)]
        expected[(..., *place, *out)] = padded[(..., *at)]
    (y,) = it.forward()
    np.testing.assert_array_equal(y, expected.reshape(y.shape))
    assert y.shape == (shape[0], shape[1] * int(np.prod(window.kernel)), *window.out)


@pytest.mark.parametrize(("shape", "fields"), CASES)
def test_gradient_agrees_with_finite_differences(shape, fields):
    check_gradients(text(fields), distinct(*shape))


def test_kernels_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(4, 4\).*\(1, 1, 3, 3\)"):
        OneLayer(text("kernel_size: 4"), distinct(1, 1, 3, 3))
    with pytest.raises(NetError, match="layer 'it'.*kernel_size"):
        OneLayer(text(""), distinct(1, 1, 3, 3))
