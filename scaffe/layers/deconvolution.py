"""Deconvolution: the transpose of a convolution, which enlarges its bottom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.blob import Shape
from scaffe.layers.base_convolution import BaseConvolution
from scaffe.layers.im2col import Sizes, SlidingWindow
from scaffe.layers.layer import Blobs, register


class Deconvolution(BaseConvolution):
    """y = W^T * x + b: Convolution's gradient by its bottom, as a forward pass.

    x (N x C x size...), channels on `axis`; y (N x num_output x out...),
    out = stride (size - 1) + dilation (kernel - 1) + 1 - 2 pad. Parameters: W (C x num_output / group x kernel...),
    b (num_output) unless `bias_term` is false. Long et al. 2015, section 3.3.
    """

    def _sides(self) -> tuple[int, int]:
        return self.inputs, self.outputs

    def _make_window(self, shape: Shape, axis: int) -> tuple[SlidingWindow, Sizes]:
        extent = [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        axes = zip(shape[axis + 1 :], extent, self.stride, self.pad, strict=True)
        size = tuple(s * (n - 1) + e - 2 * p for n, e, s, p in axes)
        if min(size, default=1) < 1:
            raise self.shape_error(f"pad {self.pad} leaves a top of size {size} for a bottom of shape {shape}")
        return SlidingWindow(size, self.kernel, self.stride, self.pad, self.dilation), size

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        for x, y in zip(bottom, top, strict=True):
            maps, images = self._maps(x.array), self._images(y.array)
            for part in self._chunks():
                self._spread(self._gather(maps[part]), images[part])
            if self.bias_term:
                pixels = self._pixels(images)
                pixels += self.blobs[1].array[:, None]

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        for x, y, down in zip(bottom, top, propagate_down, strict=True):
            maps, images = self._maps(x.array), self._images(y.diff_array)
            self._add_bias_diff(self._pixels(images), (0, 2))
            for part in self._chunks():
                self._add_weight_diff(images[part], self._gather(maps[part]))
                if down:
                    self._scatter(self._correlate(images[part]), self._maps(x.diff_array)[part])

    def _pixels(self, images: Any) -> Any:
        """Return images as (N x num_output x pixels), a view."""
        return images.reshape(self.images, self.outputs, -1)


register("Deconvolution", Deconvolution)
