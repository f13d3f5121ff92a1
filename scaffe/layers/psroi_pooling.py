"""PSROIPooling: the means of a grid of bins in each region, each bin of other channels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import ceil, floor

import numpy as np

from scaffe.layers.layer import Blobs, register
from scaffe.layers.regions import Bins, RegionPooling, clipped, rounded


class PSROIPooling(RegionPooling):
    """y (R x output_dim x k x k) = the mean of each of k x k bins, k = group_size; 0 where a bin is outside.

    Bin (i, j) of output c reads channel (c k + i) k + j of the features (N x output_dim k^2 x H x W). Dai et al. 2016
    (R-FCN), equation 1.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.psroi_pooling_param
        self.bins, self.outputs, self.scale = (param.group_size,) * 2, param.output_dim, np.float32(param.spatial_scale)
        if param.group_size < 1 or param.output_dim < 1 or not 0 < param.spatial_scale < np.inf:
            raise self.error("psroi_pooling_param needs group_size and output_dim of at least 1, spatial_scale above 0")

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self.check(bottom)
        wanted = self.outputs * self.bins[0] ** 2
        if bottom[0].shape[1] != wanted:
            raise self.shape_error(
                f"bottom 0 has shape {bottom[0].shape}; output_dim {self.outputs} and group_size {self.bins[0]} need "
                f"{wanted} channels"
            )
        top[0].reshape(bottom[1].num, self.outputs, *self.bins)

    def edges(self, start: float, end: float, size: int, bins: int) -> list[tuple[int, int]]:
        first, last = np.float32(rounded(start)) * self.scale, np.float32(rounded(end) + 1.0) * self.scale
        step = max(last - first, np.float32(0.1)) / np.float32(bins)
        edges = np.arange(bins + 1, dtype=np.float32) * step + first
        return [clipped(floor(a), ceil(b), size) for a, b in pairwise(edges)]

    def _parts(self, region: Bins) -> Iterator[tuple[int, int, tuple[slice, slice], int]]:
        """Yield each bin of a region that has pixels: its row, its column, its pixels and their number."""
        for i, j in np.ndindex(self.bins):
            (top, end), (left, right) = region.rows[i], region.columns[j]
            if top < end and left < right:
                yield i, j, (slice(top, end), slice(left, right)), (end - top) * (right - left)

    def _split(self, array: np.ndarray) -> np.ndarray:
        """Return features as (N x output_dim x k x k x H x W), a view."""
        return array.reshape(len(array), self.outputs, *self.bins, *array.shape[2:])

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x = self._split(self.features(bottom))
        y = np.zeros(top[0].shape, x.dtype)
        for region, out in zip(self.regions(bottom), y, strict=True):
            for i, j, pixels, area in self._parts(region):
                out[:, i, j] = x[region.image, :, i, j][(slice(None), *pixels)].sum((1, 2)) / area
        self.write(top[0], y)

    def spread(self, bottom: Blobs, dy: np.ndarray, dx: np.ndarray) -> None:
        split = self._split(dx)
        for region, given in zip(self.regions(bottom), dy, strict=True):
            for i, j, pixels, area in self._parts(region):
                split[region.image, :, i, j][(slice(None), *pixels)] += (given[:, i, j] / area)[:, None, None]


register("PSROIPooling", PSROIPooling)
