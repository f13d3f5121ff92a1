"""LRN against its formula and finite differences."""

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError

ACROSS = ["local_size: 5 alpha: 0.5 beta: 0.75", "local_size: 3 alpha: 2 beta: 0.5 k: 2", "local_size: 1 alpha: 1"]
WITHIN = ["local_size: 3 alpha: 0.5 beta: 0.75", "local_size: 5 alpha: 2 beta: 0.5 k: 7", "local_size: 1"]
SHAPES = [(2, 3, 2, 3), (1, 7, 1, 2), (3, 1, 4, 3)]


def text(fields, region="ACROSS_CHANNELS"):
    return f'type: "LRN" lrn_param {{ {fields} norm_region: {region} }}'


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fields", ACROSS)
def test_values_are_scaled_by_the_channels_around(shape, fields):
    x = distinct(*shape)
    it = OneLayer(text(fields), x)
    p = it.layer.param.lrn_param
    expected = np.empty(shape)
    for n, c, h, w in np.ndindex(*shape):
        near = range(max(0, c - p.local_size // 2), min(shape[1], c + p.local_size // 2 + 1))
        scale = p.k + p.alpha / p.local_size * sum(x[n, i, h, w] ** 2 for i in near)
        expected[n, c, h, w] = x[n, c, h, w] * scale**-p.beta
    np.testing.assert_allclose(it.forward()[0], expected, rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fields", WITHIN)
def test_values_are_scaled_by_the_pixels_around(shape, fields):
    x = distinct(*shape)
    it = OneLayer(text(fields, "WITHIN_CHANNEL"), x)
    p = it.layer.param.lrn_param
    reach, expected = p.local_size // 2, np.empty(shape)
    for n, c, h, w in np.ndindex(*shape):
        square = x[n, c, max(0, h - reach) : h + reach + 1, max(0, w - reach) : w + reach + 1]
        expected[n, c, h, w] = x[n, c, h, w] * (1 + p.alpha / p.local_size**2 * (square**2).sum()) ** -p.beta
    np.testing.assert_allclose(it.forward()[0], expected, rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("snippet", [*map(text, ACROSS), *(text(fields, "WITHIN_CHANNEL") for fields in WITHIN)])
def test_gradient_agrees_with_finite_differences(shape, snippet):
    check_gradients(snippet, distinct(*shape) * 2)


def test_large_neighbours_leave_no_trace_in_small_ones():
    """A running sum that adds and subtracts would keep the rounding error of the large values."""
    x = np.full((1, 8, 1, 1), 1e-3)
    x[0, 2] = 1e18
    alone = OneLayer(text("local_size: 3 alpha: 1"), np.full((1, 3, 1, 1), 1e-3)).forward()[0]
    np.testing.assert_array_equal(OneLayer(text("local_size: 3 alpha: 1"), x).forward()[0][0, 6], alone[0, 1])


def test_an_even_local_size_is_refused():
    with pytest.raises(NetError, match="odd"):
        OneLayer(text("local_size: 4"), distinct(1, 3, 2, 2))


def test_a_bottom_without_four_axes_is_refused():
    with pytest.raises(ShapeError, match=r"\(2, 3\)"):
        OneLayer(text("local_size: 3"), distinct(2, 3))
