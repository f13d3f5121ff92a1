"""Convolution in any number of spatial axes, with groups and dilation."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.blob import Shape
from scaffe.layers.base_convolution import BaseConvolution
from scaffe.layers.im2col import Sizes, SlidingWindow
from scaffe.layers.layer import Blobs, register


class Convolution(BaseConvolution):
    """y = W * x + b, a cross-correlation, with the same W and b for every pair of bottom and top.

    x (N x C x size...), channels on `axis`, where N stands for all axes before it; y (N x num_output x out...),
    out = floor((size + 2 pad - dilation (kernel - 1) - 1) / stride) + 1. Parameters: W (num_output x C / group x
    kernel...), b (num_output) unless `bias_term` is false.
    """

    def _sides(self) -> tuple[int, int]:
        return self.outputs, self.inputs

    def _make_window(self, shape: Shape, axis: int) -> tuple[SlidingWindow, Sizes]:
        window = self.window_over(shape, axis)
        return window, window.out

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        for x, y in zip(bottom, top, strict=True):
            images, maps = self._images(x.array), self._maps(y.array)
            for part in self._chunks():
                product = self._correlate(images[part])
                if self.bias_term:
                    product += self.blobs[1].array[:, None]
                self._scatter(product, maps[part])

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        for x, y, down in zip(bottom, top, propagate_down, strict=True):
            images, maps = self._images(x.array), self._maps(y.diff_array)
            for part in self._chunks():
                product = self._gather(maps[part])
                self._add_weight_diff(images[part], product)
                self._add_bias_diff(product, 1)
                if down:
                    self._spread(product, self._images(x.diff_array)[part])


register("Convolution", Convolution)
