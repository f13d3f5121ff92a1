"""Windows and columns against plain loops."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaffe.layers.im2col import Columns, SlidingWindow


def window(size, kernel, stride=1, pad=0, dilation=1):
    return SlidingWindow(
        size, kernel, *((n,) * len(size) if isinstance(n, int) else n for n in (stride, pad, dilation))
    )


WINDOWS = [
    window((5, 4), (3, 2)),
    window((5, 4), (3, 2), stride=2, pad=1),
    window((7, 5), (2, 3), stride=(3, 1), pad=(0, 2), dilation=(2, 1)),
    window((6,), (3,), stride=2, pad=2),
    window((3, 4, 2), (2, 1, 2), pad=(1, 0, 1)),
    window((4, 3), (1, 1)),
    window((4, 3), (1, 1), stride=2),
    window((4, 3), (1, 1), pad=1),
    window((4, 3), (4, 3)),
    window((), ()),
]


def pixels(window):
    """Yield, for each place of the kernel and each position, the pixel below it, None in the padding."""
    for place in product(*map(range, window.kernel)):
        for position in product(*map(range, window.out)):
            axes = zip(position, place, window.stride, window.pad, window.dilation, strict=True)
            pixel = tuple(o * s - p + i * d for o, i, s, p, d in axes)
            inside = all(0 <= at < n for at, n in zip(pixel, window.size, strict=True))
            yield place, position, pixel if inside else None


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("images", [1, 3])
def test_each_column_holds_the_pixels_under_the_kernel(window, images):
    x = np.random.default_rng(0).standard_normal((images, 2, *window.size))
    matrix = Columns(np, x.dtype, images, 2, window).unfold(x)
    columns = matrix.reshape(2, *window.kernel, *window.out, images)
    for place, position, pixel in pixels(window):
        expected = 0 if pixel is None else x[(slice(None), slice(None), *pixel)].T
        np.testing.assert_array_equal(columns[(slice(None), *place, *position)], np.broadcast_to(expected, (2, images)))


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("images", [1, 3])
def test_folding_is_the_transpose_of_unfolding(window, images):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((images, 2, *window.size))
    columns = Columns(np, x.dtype, images, 2, window)
    unfolded = columns.unfold(x).copy()
    gradient = rng.standard_normal(unfolded.shape)
    columns.matrix[...] = gradient
    folded = np.full(x.shape, np.nan)
    columns.fold(folded)
    assert (gradient * unfolded).sum() == pytest.approx((folded * x).sum(), rel=1e-12)
    np.testing.assert_array_equal(columns.unfold(x), unfolded, "the padding is no longer zero")


sizes = st.integers(1, 9)


@given(sizes, st.integers(1, 4), st.integers(1, 3), st.integers(0, 3), st.integers(1, 3))
def test_positions_are_all_those_where_the_kernel_lies_in_the_padded_picture(size, kernel, stride, pad, dilation):
    w = window((size,), (kernel,), stride, pad, dilation)
    starts = [at for at in range(0, size + 2 * pad, stride) if at + dilation * (kernel - 1) < size + 2 * pad]
    assert max(0, w.out[0]) == len(starts)
