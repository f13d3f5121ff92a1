"""SPP against plain loops over its windows, and finite differences."""

from itertools import product

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.context import TEST, Context
from scaffe.errors import NetError, ShapeError

CASES = [
    ((2, 3, 7, 6), 2),
    ((1, 2, 5, 9), 2),
    ((1, 2, 4, 4), 1),
    ((2, 1, 11, 8), 3),
    ((1, 1, 8, 8), 4),
]


def text(height, pool="MAX"):
    return f'type: "SPP" spp_param {{ pyramid_height: {height} pool: {pool} }}'


def windows(size, bins):
    """Return the first pixel, possibly in the padding, and the end of each window on an axis."""
    kernel = -(-size // bins)
    pad = (kernel * bins - size + 1) // 2
    return [(i * kernel - pad, min((i + 1) * kernel - pad, size + pad)) for i in range(bins)]


def pyramid(x, height, pool):
    """Return the top, window by window."""
    values = []
    for bins in (2**level for level in range(height)):
        for c in range(x.shape[1]):
            for (top, bottom), (left, right) in product(*(windows(size, bins) for size in x.shape[2:])):
                block = x[:, c, max(0, top) : bottom, max(0, left) : right]
                area = (bottom - top) * (right - left)
                values.append(block.max(axis=(1, 2)) if pool == "MAX" else block.sum(axis=(1, 2)) / area)
    return np.array(values).T


@pytest.mark.parametrize("pool", ["MAX", "AVE"])
@pytest.mark.parametrize(("shape", "height"), CASES)
def test_each_grid_pools_the_whole_picture(pool, shape, height):
    x = distinct(*shape)
    np.testing.assert_allclose(OneLayer(text(height, pool), x).forward()[0], pyramid(x, height, pool), rtol=1e-6)


@pytest.mark.parametrize("pool", ["MAX", "AVE"])
@pytest.mark.parametrize(("shape", "height"), CASES)
def test_gradient_agrees_with_finite_differences(pool, shape, height):
    check_gradients(text(height, pool), distinct(*shape))


def test_grids_draw_at_random_each_for_itself_and_in_the_test_phase_take_weighted_means():
    x = distinct(2, 3, 8, 8) + 0.6
    assert np.isin(OneLayer(text(3, "STOCHASTIC"), x).forward()[0], x).all()
    (y,) = OneLayer(text(1, "STOCHASTIC"), x, context=Context(phase=TEST)).forward()
    np.testing.assert_allclose(y, (x**2).sum(axis=(2, 3)) / x.sum(axis=(2, 3)), rtol=1e-12)


def test_pictures_of_another_size_give_as_many_values():
    it = OneLayer(text(2), distinct(2, 3, 8, 8))
    it.bottom[0].array = distinct(2, 3, 5, 7)
    it.layer.reshape(it.bottom, it.top)
    np.testing.assert_allclose(it.forward()[0], pyramid(distinct(2, 3, 5, 7), 2, "MAX"), rtol=1e-6)


def test_heights_that_do_not_fit_are_refused():
    with pytest.raises(NetError, match="layer 'it'.*pyramid_height"):
        OneLayer('type: "SPP"', distinct(1, 1, 4, 4))
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(1, 1, 3, 3\).*4 windows"):
        OneLayer(text(3), distinct(1, 1, 3, 3))
    with pytest.raises(ShapeError, match=r"layer 'it'.*4 axes.*\(2, 3\)"):
        OneLayer(text(1), distinct(2, 3))
