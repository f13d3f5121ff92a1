"""Interp against bilinear interpolation, pixel by pixel, and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError


def text(fields):
    return f'type: "Interp" interp_param {{ {fields} }}'


def interpolated(x, wanted):
    """Interpolate between the corners of images (N x C x H x W)."""
    y = np.empty((*x.shape[:2], *wanted))
    for i, j in np.ndindex(*wanted):
        at = [k * (n - 1) / (w - 1) if w > 1 else 0 for k, n, w in zip((i, j), x.shape[2:], wanted, strict=True)]
        low = [int(place) for place in at]
        high = [min(place + 1, n - 1) for place, n in zip(low, x.shape[2:], strict=True)]
        u, v = (place - floor for place, floor in zip(at, low, strict=True))
        upper = (1 - v) * x[:, :, low[0], low[1]] + v * x[:, :, low[0], high[1]]
        lower = (1 - v) * x[:, :, high[0], low[1]] + v * x[:, :, high[0], high[1]]
        y[:, :, i, j] = (1 - u) * upper + u * lower
    return y


@pytest.mark.parametrize(
    ("fields", "wanted", "cut"),
    [
        ("height: 7 width: 3", (7, 3), (0, 0)),
        ("height: 4 width: 5", (4, 5), (0, 0)),
        ("height: 1 width: 1", (1, 1), (0, 0)),
        ("zoom_factor: 3", (10, 13), (0, 0)),
        ("shrink_factor: 2", (2, 3), (0, 0)),
        ("shrink_factor: 2 zoom_factor: 2", (3, 5), (0, 0)),
        ("height: 5 width: 6 pad_beg: -1", (5, 6), (1, 0)),
        ("zoom_factor: 2 pad_beg: -1 pad_end: -1", (3, 5), (1, 1)),
    ],
)
def test_pixels_are_those_between_the_corners(fields, wanted, cut):
    x = distinct(2, 3, 4, 5)
    part = x[:, :, cut[0] : 4 - cut[1], cut[0] : 5 - cut[1]]
    (y,) = OneLayer(text(fields), x).forward()
    assert y.shape == (2, 3, *wanted)
    np.testing.assert_allclose(y, interpolated(part, wanted), rtol=0, atol=1e-6)
    check_gradients(text(fields), distinct(1, 2, 4, 5))


@pytest.mark.parametrize(
    ("fields", "said"),
    [("", "needs zoom_factor, shrink_factor, or height and width"), ("height: 3", "needs zoom"),
     ("zoom_factor: 0", "below 1"), ("zoom_factor: 2 pad_beg: 1", "can only cut off")],
)  # fmt: skip
def test_wrong_fields_are_refused(fields, said):
    with pytest.raises(NetError, match=f"layer 'it'.*{said}"):
        OneLayer(text(fields), distinct(1, 1, 2, 2))


def test_nothing_left_is_refused():
    with pytest.raises(ShapeError, match="layer 'it'.*nothing is left"):
        OneLayer(text("zoom_factor: 2 pad_beg: -1 pad_end: -1"), distinct(1, 1, 2, 2))
