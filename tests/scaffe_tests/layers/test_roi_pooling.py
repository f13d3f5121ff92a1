"""ROIPooling against Fast R-CNN's loop, and finite differences."""

import math

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError

REGIONS = np.array([[0, 0, 0, 15, 11], [1, 4, 2, 7, 9], [1, 5, 5, 5, 5], [0, -4, -4, 40, 40], [1, 13, 1, 9, 2.5]])


def text(h=2, w=3, scale=0.5):
    return f'type: "ROIPooling" roi_pooling_param {{ pooled_h: {h} pooled_w: {w} spatial_scale: {scale} }}'


def nearest(value):
    return math.floor(value + 0.5) if value >= 0 else -math.floor(0.5 - value)


def pooled(x, regions, h, w, scale):
    y = np.zeros((len(regions), x.shape[1], h, w))
    for r, region in enumerate(regions):
        left, top, right, bottom = (nearest(value * scale) for value in region[1:])
        rows, columns = max(bottom - top + 1, 1), max(right - left + 1, 1)
        for i, j in np.ndindex(h, w):
            ys = slice(*(min(max(edge, 0), x.shape[2]) for edge in
                         (math.floor(i * rows / h) + top, math.ceil((i + 1) * rows / h) + top)))  # fmt: skip
            xs = slice(*(min(max(edge, 0), x.shape[3]) for edge in
                         (math.floor(j * columns / w) + left, math.ceil((j + 1) * columns / w) + left)))  # fmt: skip
            window = x[int(region[0]), :, ys, xs]
            if window.size:
                y[r, :, i, j] = window.max((1, 2))
    return y


@pytest.mark.parametrize(("h", "w", "scale"), [(2, 3, 0.5), (7, 7, 0.5), (1, 1, 0.25), (3, 2, 1)])
def test_bins_hold_their_maxima(h, w, scale):
    x = distinct(2, 3, 6, 8)
    (y,) = OneLayer(text(h, w, scale), x, REGIONS).forward()
    np.testing.assert_array_equal(y, pooled(x, REGIONS, h, w, scale))
    check_gradients(text(h, w, scale), x, REGIONS, smooth=[0])


def test_of_equal_values_the_first_gets_the_gradient():
    it = OneLayer(text(1, 1, 1), np.ones((1, 1, 2, 2)), [[0, 0, 0, 1, 1]])
    it.forward()
    np.testing.assert_array_equal(it.backward([[[[3]]]], down=[True, False])[0], [[[[3, 0], [0, 0]]]])


@pytest.mark.parametrize("shape", [(5, 5), (5, 5, 1, 1)])
def test_regions_can_have_more_axes(shape):
    assert OneLayer(text(), distinct(2, 3, 6, 8), REGIONS.reshape(shape)).top[0].shape == (5, 3, 2, 3)


def test_wrong_regions_are_refused():
    it = OneLayer(text(), distinct(2, 3, 6, 8), [[2, 0, 0, 1, 1]])
    with pytest.raises(NetError, match="layer 'it'.*a region of bottom 1 is of image 2; bottom 0 has 2, from 0 on"):
        it.forward()
    with pytest.raises(ShapeError, match=r"layer 'it'.*\(1, 4\); give N x C x H x W, and R x 5"):
        OneLayer(text(), distinct(2, 3, 6, 8), [[0, 0, 1, 1]])
    with pytest.raises(NetError, match="layer 'it'.*needs pooled_h and pooled_w"):
        OneLayer(text(0), distinct(2, 3, 6, 8), REGIONS)


def test_a_batch_is_not_divided():
    it = OneLayer(text(), distinct(2, 3, 6, 8), REGIONS)
    assert "regions name images" in it.layer.mixes_samples(it.bottom)


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_regions_that_are_not_finite_are_refused(place, value):
    """As a proposal layer gives them once its net's training has diverged."""
    region = np.array([[0.0, 0, 0, 1, 1]])
    region[0, place] = value
    with pytest.raises(NetError, match="layer 'it'.*a region of bottom 1 is .*; give finite numbers"):
        OneLayer(text(), distinct(2, 3, 6, 8), region).forward()


@pytest.mark.parametrize("scale", [0, -1, "nan", "inf"])
def test_a_scale_that_is_not_above_0_is_refused(scale):
    with pytest.raises(NetError, match="layer 'it'.*needs spatial_scale above 0"):
        OneLayer(text(scale=scale), distinct(2, 3, 6, 8), REGIONS)
