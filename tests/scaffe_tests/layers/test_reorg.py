"""Reorg against Darknet's loop over memory, and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError


def text(stride, reverse=False):
    return f'type: "Reorg" reorg_param {{ stride: {stride} reverse: {str(reverse).lower()} }}'


def darknet(x, s, reverse):
    """Copy as Darknet's reorg does: by indices into flat memory, whose two sides have the bottom's sizes."""
    num, channels, height, width = x.shape
    flat, out, few = x.reshape(-1), np.empty(x.size), channels // (s * s)
    for n, c, h, w in np.ndindex(x.shape):
        coarse = w + width * (h + height * (c + channels * n))
        fine_w, fine_h = w * s + c // few % s, h * s + c // few // s
        fine = fine_w + width * s * (fine_h + height * s * (c % few + few * n))
        if reverse:
            out[fine] = flat[coarse]
        else:
            out[coarse] = flat[fine]
    shape = (few, height * s, width * s) if reverse else (channels * s * s, height // s, width // s)
    return out.reshape(num, *shape)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("stride", "shape"), [(2, (2, 8, 4, 6)), (1, (1, 2, 3, 3)), (3, (1, 9, 3, 6))])
def test_pixels_go_where_darknet_puts_them(stride, shape, reverse):
    x = distinct(*shape)
    np.testing.assert_array_equal(OneLayer(text(stride, reverse), x).forward()[0], darknet(x, stride, reverse))
    check_gradients(text(stride, reverse), x)


def test_wrong_strides_are_refused():
    with pytest.raises(NetError, match="layer 'it'.*needs stride"):
        OneLayer('type: "Reorg"', distinct(1, 4, 2, 2))
    with pytest.raises(ShapeError, match=r"layer 'it'.*stride 2 .*\(1, 4, 3, 2\); it must divide channels by 4"):
        OneLayer(text(2), distinct(1, 4, 3, 2))
