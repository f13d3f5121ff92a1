"""Sliding windows over images, and the columns that turn a convolution into a matrix product.

The image index is the last axis of all arrays here. Each kernel element reads a strided slice of the padded images;
with the image index last, the slice consists of contiguous runs, which are copied and added at memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from types import ModuleType
from typing import Any

Sizes = tuple[int, ...]
Index = tuple[slice | int, ...]


@dataclass(frozen=True)
class SlidingWindow:
    """The window of a convolution over images of `size`; each field has one number per spatial axis."""

    size: Sizes
    kernel: Sizes
    stride: Sizes
    pad: Sizes
    dilation: Sizes

    @property
    def padded(self) -> Sizes:
        """Size of an image with its padding on both sides."""
        return tuple(n + 2 * p for n, p in zip(self.size, self.pad, strict=True))

    @property
    def extent(self) -> Sizes:
        """Size of the dilated kernel."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def out(self) -> Sizes:
        """Number of window positions; below 1 if the dilated kernel is larger than the padded image."""
        return tuple((n - e) // s + 1 for n, e, s in zip(self.padded, self.extent, self.stride, strict=True))

    @property
    def pointwise(self) -> bool:
        """Whether each position covers exactly its own pixel: the images are their own columns."""
        return self.size == self.out and prod(self.kernel) == 1 and not any(self.pad)

    def places(self) -> Iterator[tuple[Index, Index]]:
        """Yield, for each kernel element, the index of its columns and the index of the padded pixels it reads."""
        every = slice(None)
        axes = list(zip(self.dilation, self.stride, self.out, strict=True))
        for place in product(*map(range, self.kernel)):
            met = (slice(i * d, i * d + s * (n - 1) + 1, s) for i, (d, s, n) in zip(place, axes, strict=True))
            yield (every, *place), (every, *met)


class Columns:
    """Unfold n images into columns (im2col) and fold columns into images (col2im), in buffers allocated once.

    Images (n x C x size...), columns (C kernel... x out... n). For a pointwise window the images are the columns.
    """

    def __init__(self, xp: ModuleType, dtype: Any, images: int, channels: int, window: SlidingWindow):
        self.window = window
        self.inside = (slice(None), *(slice(p, p + n) for p, n in zip(window.pad, window.size, strict=True)))
        self.padded = xp.zeros((channels, *window.padded, images), dtype)  # the padding stays zero
        if window.pointwise:
            self.columns, self.folded = self.padded, self.padded
        else:
            self.columns = xp.empty((channels, *window.kernel, *window.out, images), dtype)
            self.folded = xp.empty_like(self.padded)
        self.matrix = self.columns.reshape(channels * prod(window.kernel), prod(window.out) * images)

    def unfold(self, images: Any) -> Any:
        """Return the columns of `images`, a matrix that the next call overwrites."""
        self.padded[self.inside] = images_last(images)
        if not self.window.pointwise:
            for place, met in self.window.places():
                self.columns[place] = self.padded[met]
        return self.matrix

    def fold(self, images: Any) -> None:
        """Overwrite each pixel of `images` with the sum of the entries of `matrix` that it unfolds to."""
        if not self.window.pointwise:
            self.folded[...] = 0
            for place, met in self.window.places():
                self.folded[met] += self.columns[place]
        images_last(images)[...] = self.folded[self.inside]


def images_last(images: Any) -> Any:
    """Return a view of `images` (n x ...) with the image index as last axis."""
    return images.transpose(*range(1, images.ndim), 0)
