"""LRN across channels by a kernel each way."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from scaffe.layers.layer import Blobs, register
from scaffe.layers.lrn import LRN


class CudaLRN(LRN):
    """LRN across channels; within each channel the reference form."""

    capturable = True

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        if self.axes != (1,):
            return super().forward(bottom, top)
        x = bottom[0].array
        self.scale, self.power = self.buffer("scale", x.shape, x.dtype), self.buffer("power", x.shape, x.dtype)
        arrays = x, self.scale, self.power, top[0].array
        numbers = float(self.alpha), float(self.beta), float(self.k)
        self.context.engine.over("lrn", "lrn", x.size, *arrays, *self._geometry(bottom), *numbers)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if self.axes != (1,) or not propagate_down[0]:
            return super().backward(top, propagate_down, bottom)
        x, dy, dx = bottom[0].array, top[0].diff_array, bottom[0].diff_array
        factor = 2 * self.alpha * self.beta
        arrays = x, self.scale, self.power, dy, dx
        self.context.engine.over("lrn", "lrn_back", x.size, *arrays, *self._geometry(bottom), factor)

    def _geometry(self, bottom: Blobs) -> tuple[int, int, int]:
        shape = bottom[0].shape
        return shape[1], prod(shape[2:]), self.reach


register("LRN", CudaLRN, engine="cuda")
