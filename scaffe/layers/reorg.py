"""Reorg: pixels moved into channels, as YOLOv2 does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.layers.layer import Blobs, Layer, register


class Reorg(Layer):
    """Move pixels of squares of `stride` x `stride` into channels, in Darknet's order, or back with `reverse`.

    x (N x C x H x W), y (N x stride^2 C x H / stride x W / stride); with `reverse` y (N x C / stride^2 x stride H x
    stride W). Darknet, and so its Caffe forks, reads the memory of x as (N x C / stride^2 x stride H x stride W), so
    that channels and pixels mix: what YOLOv2's weights are trained for.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        self.stride, self.reverse = self.param.reorg_param.stride, self.param.reorg_param.reverse
        if not self.stride:
            raise self.error("reorg_param needs stride, at least 1")

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        shape, s = bottom[0].shape, self.stride
        if len(shape) != 4:
            raise self.shape_error(f"needs a bottom with 4 axes (N x C x H x W), got shape {shape}")
        num, channels, height, width = shape
        if channels % (s * s) or not self.reverse and (height % s or width % s):
            sizes = f"channels by {s * s}" + ("" if self.reverse else f", height and width by {s}")
            raise self.shape_error(f"stride {s} of a bottom of shape {shape}; it must divide {sizes}")
        # Darknet's fine side: C' x s H' x s W', whose pixels (s h + i, s w + j) go to channel (i s + j) C' + c.
        self.fine = num, channels // (s * s), height, s, width, s
        new = (
            (channels // (s * s), height * s, width * s)
            if self.reverse
            else (channels * s * s, height // s, width // s)
        )
        top[0].reshape(num, *new)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self._move(bottom[0].array, top[0].array, self.reverse)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            self._move(top[0].diff_array, bottom[0].diff_array, not self.reverse)

    def _move(self, source: Any, target: Any, reverse: bool) -> None:
        """Copy between the memory read as the fine side and as (N x s x s x C' x H x W)."""
        n, c, h, s, w, _ = self.fine
        fine, coarse = (target, source) if reverse else (source, target)
        moved = fine.reshape(self.fine).transpose(0, 3, 5, 1, 2, 4)
        if reverse:
            moved[...] = coarse.reshape(n, s, s, c, h, w)
        else:
            coarse.reshape(n, s, s, c, h, w)[...] = moved


register("Reorg", Reorg)
