"""LRN across channels by one kernel per pass; the backward pass recomputes the scales."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.launcher import THREADS
from scaffe.layers.layer import Blobs, register
from scaffe.layers.lrn import LRN

REACHES = 1, 2, 3, 4  # local_size 3 to 9: those that lrn.cu has kernels for
RUN = 64  # channels of a thread; RUN of lrn.cu
ROWS = 65535  # the most that the second dimension of a grid can have


class CudaLRN(LRN):
    """LRN ACROSS_CHANNELS of x (N x C x pixels); WITHIN_CHANNEL, or with local_size above 9, the reference form."""

    @property
    def _has_kernel(self) -> bool:
        return self.axes == (1,) and self.reach in REACHES

    capturable = True

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        if not self._has_kernel:
            return super().forward(bottom, top)
        self._launch("lrn", bottom[0].shape, bottom[0].array, top[0].array)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not self._has_kernel or not propagate_down[0]:
            return super().backward(top, propagate_down, bottom)
        arrays = bottom[0].array, top[0].diff_array, bottom[0].diff_array
        self._launch("lrn_back", bottom[0].shape, *arrays, last=(2 * self.alpha * self.beta,))

    def _launch(self, kernel: str, shape: tuple[int, ...], *arrays: Any, last: tuple[float, ...] = ()) -> None:
        pixels, channels = prod(shape[2:]), shape[1]
        rows = shape[0] * -(-channels // RUN)
        numbers = float(self.alpha), float(self.beta), float(self.k), *last
        grid = -(-pixels // THREADS), min(rows, ROWS)
        if min(grid):
            engine_of(self).launch("lrn", f"{kernel}_{self.reach}", grid, *arrays, pixels, channels, rows, *numbers)


register("LRN", CudaLRN, engine="cuda")
