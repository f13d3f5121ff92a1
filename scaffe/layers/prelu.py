"""PReLU: the rectified linear unit with a learned negative slope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.blob import around
from scaffe.blobs.fillers import given_or_constant
from scaffe.layers.layer import Blobs, Layer, register


class PReLU(Layer):
    """y = max(x, 0) + a_c min(x, 0).

    x, y (N x C x ...). Parameter: the slopes a (C), one per channel, or () with `channel_shared`; 0.25 at first
    unless a filler is given. May work in place. He et al. 2015, section 2.1.
    """

    in_place = True

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param, shape = self.param.prelu_param, bottom[0].shape
        if len(shape) < 2:
            raise self.shape_error(f"needs a bottom with channels on axis 1, got shape {shape}")
        self.shared = param.channel_shared
        self.add_blob(() if self.shared else (shape[1],), given_or_constant(param, 0.25))

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        shape, slopes = bottom[0].shape, self.blobs[0].shape
        if len(shape) < 2 or not self.shared and shape[1:2] != slopes:
            raise self.shape_error(f"bottom has shape {shape}, but there are slopes for {slopes[0]} channels on axis 1")
        self.view = around(shape, 1)
        top[0].reshape(*shape)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self.input = self.kept_input(bottom[0], top[0]).reshape(self.view)
        negative = self._negative()
        negative *= self._slopes()
        y = self.xp.maximum(bottom[0].array, 0, out=top[0].array).reshape(self.view)
        y += negative

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        dy = top[0].diff_array.reshape(self.view)
        if self.param_propagate_down[0]:
            parts = self._negative()
            parts *= dy
            diff = self.blobs[0].diff_array
            diff += parts.sum(axis=None if self.shared else (0, 2))
        if propagate_down[0]:
            slopes = self.xp.where(self.input > 0, 1, self._slopes())
            self.xp.multiply(dy, slopes, out=bottom[0].diff_array.reshape(self.view))

    def _negative(self) -> Any:
        """Return min(x, 0), in a buffer that the next call overwrites."""
        return self.xp.minimum(self.input, 0, out=self.buffer("negative", self.view, self.input.dtype))

    def _slopes(self) -> Any:
        return self.blobs[0].array.reshape(1, -1, 1)


register("PReLU", PReLU)
