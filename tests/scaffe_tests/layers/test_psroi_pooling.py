"""PSROIPooling against R-FCN's loop, and finite differences."""

import math

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, distinct

from scaffe.errors import NetError, ShapeError

REGIONS = np.array([[0, 0, 0, 15, 11], [1, 4, 2, 7, 9], [1, 5, 5, 5, 5], [0, -4, -4, 40, 40], [1, 13.5, 1, 9, 2.5]])


def text(outputs=2, k=3, scale=0.5):
    return (
        f'type: "PSROIPooling" psroi_pooling_param {{ output_dim: {outputs} group_size: {k} spatial_scale: {scale} }}'
    )


def nearest(value):
    return math.floor(value + 0.5) if value >= 0 else -math.floor(0.5 - value)


def pooled(x, regions, outputs, k, scale):
    y = np.zeros((len(regions), outputs, k, k))
    for r, region in enumerate(regions):
        left, top = (nearest(value) * scale for value in region[1:3])
        right, bottom = ((nearest(value) + 1) * scale for value in region[3:])
        width, height = max(right - left, 0.1) / k, max(bottom - top, 0.1) / k
        for c, i, j in np.ndindex(outputs, k, k):
            y0, y1 = math.floor(i * height + top), math.ceil((i + 1) * height + top)
            x0, x1 = math.floor(j * width + left), math.ceil((j + 1) * width + left)
            window = x[int(region[0]), (c * k + i) * k + j, max(y0, 0) : max(y1, 0), max(x0, 0) : max(x1, 0)]
            y[r, c, i, j] = window.mean() if window.size else 0
    return y


@pytest.mark.parametrize(("outputs", "k", "scale"), [(2, 3, 0.5), (1, 4, 0.5), (3, 1, 0.25), (2, 2, 1)])
def test_bins_hold_the_means_of_their_own_channels(outputs, k, scale):
    x = distinct(2, outputs * k * k, 6, 8)
    (y,) = OneLayer(text(outputs, k, scale), x, REGIONS).forward()
    np.testing.assert_allclose(y, pooled(x, REGIONS, outputs, k, scale), rtol=0, atol=1e-12)
    check_gradients(text(outputs, k, scale), x[:, :, :3, :4], REGIONS, smooth=[0])


def test_wrong_channels_and_regions_are_refused():
    with pytest.raises(ShapeError, match=r"layer 'it'.*output_dim 2 and group_size 3 need 18 channels"):
        OneLayer(text(), distinct(2, 9, 6, 8), REGIONS)
    with pytest.raises(NetError, match="layer 'it'.*needs group_size and output_dim of at least 1"):
        OneLayer(text(k=0), distinct(2, 9, 6, 8), REGIONS)
    with pytest.raises(NetError, match="layer 'it'.*spatial_scale above 0"):
        OneLayer(text(scale="inf"), distinct(2, 18, 6, 8), REGIONS)
    it = OneLayer(text(), distinct(1, 18, 6, 8), REGIONS)
    with pytest.raises(NetError, match="layer 'it'.*is of image 1; bottom 0 has 1"):
        it.forward()
