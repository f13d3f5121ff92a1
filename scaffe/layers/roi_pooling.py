"""ROIPooling: the maxima of a grid of bins in each region."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor

import numpy as np

from scaffe.layers.layer import Blobs, register
from scaffe.layers.regions import RegionPooling, clipped, rounded


class ROIPooling(RegionPooling):
    """y (R x C x pooled_h x pooled_w) = the maximum of each bin of each region; 0 where a bin is outside.

    Regions are in pixels of the picture, `spatial_scale` times which are the features' pixels. Girshick 2015 (Fast
    R-CNN), section 2.1.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.roi_pooling_param
        self.bins, self.scale = (param.pooled_h, param.pooled_w), np.float32(param.spatial_scale)
        if not all(self.bins):
            raise self.error("roi_pooling_param needs pooled_h and pooled_w, at least 1")
        if not 0 < self.scale < np.inf:
            raise self.error(f"roi_pooling_param needs spatial_scale above 0, got {self.scale:g}")

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self.check(bottom)
        top[0].reshape(bottom[1].num, bottom[0].shape[1], *self.bins)

    def edges(self, start: float, end: float, size: int, bins: int) -> list[tuple[int, int]]:
        first, last = (rounded(float(np.float32(place) * self.scale)) for place in (start, end))
        step = np.float32(max(last - first + 1, 1)) / np.float32(bins)
        edges = np.arange(bins + 1, dtype=np.float32) * step
        return [clipped(first + floor(a), first + ceil(b), size) for a, b in pairwise(edges)]

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        x = self.features(bottom)
        y = np.zeros(top[0].shape, x.dtype)
        for region, out in zip(self.regions(bottom), y, strict=True):
            for i, (first, last) in enumerate(region.rows):
                if first < last:
                    self._columns(x[region.image, :, first:last].max(1), region.columns, out[:, i])
        self.write(top[0], y)

    def _columns(self, maxima: np.ndarray, columns: Sequence[tuple[int, int]], out: np.ndarray) -> None:
        """Write the maxima (C x bins) of columns of (C x W)."""
        for j, (first, last) in enumerate(columns):
            if first < last:
                out[:, j] = maxima[:, first:last].max(1)

    def spread(self, bottom: Blobs, dy: np.ndarray, dx: np.ndarray) -> None:
        x, channels = self.features(bottom), np.arange(bottom[0].shape[1])
        for region, given in zip(self.regions(bottom), dy, strict=True):
            for i, j in np.ndindex(self.bins):
                (top, end), (left, right) = region.rows[i], region.columns[j]
                if top < end and left < right:
                    window = x[region.image, :, top:end, left:right].reshape(len(channels), -1)
                    h, w = np.divmod(window.argmax(1), right - left)  # the first of equal values
                    dx[region.image, channels, top + h, left + w] += given[:, i, j]


register("ROIPooling", ROIPooling)
