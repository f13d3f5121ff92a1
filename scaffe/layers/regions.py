"""RegionPooling: the base of layers that pool the bins of regions of images, on the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from scaffe.blob import Blob, on_host
from scaffe.layers.layer import Blobs, Layer


class Bins(NamedTuple):
    """The bins of a region: the image's index, and first and last + 1 row or column of each bin on both axes."""

    image: int
    rows: list[tuple[int, int]]
    columns: list[tuple[int, int]]


class RegionPooling(Layer):
    """Pool the bins of regions. Bottoms: features (N x C x H x W); regions (R x 5): image, x1, y1, x2, y2 in pixels.

    Subclasses set `bins`, their number on both axes, and say in `edges` where they are.
    """

    bottoms = (2, 2)
    bottom_names = "features, regions"
    bins: tuple[int, int]

    def check(self, bottom: Blobs) -> None:
        """Raise ShapeError where the bottoms are not features and regions."""
        features, regions = (blob.shape for blob in bottom)
        if len(features) != 4 or len(regions) < 2 or bottom[1].count != 5 * regions[0]:
            raise self.shape_error(
                f"bottoms have shapes {features} and {regions}; give N x C x H x W, and R x 5: image, x1, y1, x2, y2"
            )

    def edges(self, start: float, end: float, size: int, bins: int) -> list[tuple[int, int]]:
        """Return the bins on an axis of `size` pixels, for a region from pixel `start` to `end` of the picture."""
        raise NotImplementedError

    def regions(self, bottom: Blobs) -> Iterator[Bins]:
        """Yield the bins of each region. Raise NetError for an image that is not in the batch."""
        images, _, height, width = bottom[0].shape
        for row in on_host(bottom[1].array).reshape(-1, 5):
            if not np.isfinite(row).all():
                raise self.error(f"a region of bottom 1 is {row.tolist()}; give finite numbers: image, x1, y1, x2, y2")
            if not 0 <= int(row[0]) < images:
                raise self.error(f"a region of bottom 1 is of image {row[0]:g}; bottom 0 has {images}, from 0 on")
            rows = self.edges(row[2], row[4], height, self.bins[0])
            yield Bins(int(row[0]), rows, self.edges(row[1], row[3], width, self.bins[1]))

    def features(self, bottom: Blobs) -> np.ndarray:
        return on_host(bottom[0].array)

    def write(self, blob: Blob, values: np.ndarray, diff: bool = False) -> None:
        """Write values from the host into a blob."""
        target: Any = blob.diff_array if diff else blob.array
        target[...] = self.xp.asarray(values)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.refuse_gradient(propagate_down, 1, "regions")
        if propagate_down[0]:
            dx = np.zeros(bottom[0].shape, on_host(top[0].diff_array).dtype)
            self.spread(bottom, on_host(top[0].diff_array), dx)
            self.write(bottom[0], dx, diff=True)

    def spread(self, bottom: Blobs, dy: np.ndarray, dx: np.ndarray) -> None:
        """Add the gradients of the bins to dx."""
        raise NotImplementedError

    def allows_force_backward(self, bottom_index: int) -> bool:
        return bottom_index == 0

    def mixes_samples(self, bottom: Blobs) -> str:
        return "its regions name images by their place in the whole batch"


def rounded(value: float) -> int:
    """Return the nearest whole number, away from 0 where two are near, as in C."""
    return int(np.floor(abs(value) + 0.5)) * (-1 if value < 0 else 1)


def clipped(first: int, last: int, size: int) -> tuple[int, int]:
    """Return a bin inside of an axis."""
    return min(max(first, 0), size), min(max(last, 0), size)
