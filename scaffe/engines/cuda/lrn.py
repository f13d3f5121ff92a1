"""LRN across channels by one kernel per pass; the backward pass recomputes the scales."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from scaffe.blob import Blob
from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.forms import arrays, data, diff
from scaffe.engines.cuda.launcher import THREADS, divisor
from scaffe.engines.cuda.layouts import pack_of
from scaffe.engines.cuda.typed_blobs import TypedLayer
from scaffe.layers.layer import Blobs, register
from scaffe.layers.lrn import LRN

REACHES = 1, 2, 3, 4  # local_size 3 to 9: those that lrn.cu has kernels for
RUN = 64  # channels of a thread; RUN of lrn.cu
ROWS = 65535  # the most that the second dimension of a grid can have


class CudaLRN(TypedLayer, LRN):
    """LRN ACROSS_CHANNELS of x (N x C x pixels); WITHIN_CHANNEL, or with local_size above 9, the reference form."""

    @property
    def _has_kernel(self) -> bool:
        return not self.is_within and self.reach in REACHES

    capturable = True

    def typed_blobs(self, bottom: Blobs, top: Blobs) -> list[Blob]:
        return [*bottom, *top] if self._has_kernel else []

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        if not self._has_kernel:
            return super().forward(bottom, top)
        is_last, (x, y) = arrays([data(bottom[0])], [data(top[0])])
        self._run("lrn", is_last, bottom[0].shape, x, y)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not self._has_kernel or not propagate_down[0]:
            return super().backward(top, propagate_down, bottom)
        is_last, found = arrays([data(bottom[0]), diff(top[0])], [diff(bottom[0])])
        self._run("lrn_back", is_last, bottom[0].shape, *found, last=(2 * self.alpha * self.beta,))

    def _run(
        self, kernel: str, is_last: bool, shape: tuple[int, ...], *found: Any, last: tuple[float, ...] = ()
    ) -> None:
        if not is_last:
            self._launch(kernel, shape, *found, last=last)
            return
        ending, many = _packs_of(found[0])
        groups = found[0].shape[-1] // many
        numbers = float(self.alpha), float(self.beta), float(self.k), *last
        name, count = f"{kernel}_{self.reach}{ending}", found[0].size // many
        engine_of(self).over("lrn_last", name, count, *found, groups, divisor(groups), *numbers)

    def _launch(self, kernel: str, shape: tuple[int, ...], *arrays: Any, last: tuple[float, ...] = ()) -> None:
        pixels, channels = prod(shape[2:]), shape[1]
        rows = shape[0] * -(-channels // RUN)
        numbers = float(self.alpha), float(self.beta), float(self.k), *last
        grid = -(-pixels // THREADS), min(rows, ROWS)
        if min(grid):
            engine_of(self).launch("lrn", f"{kernel}_{self.reach}", grid, *arrays, pixels, channels, rows, *numbers)


def _packs_of(maps: Any) -> tuple[str, int]:
    """Return the ending of the names of kernels for maps channels last, and the channels of a thread.

    These are two packs where that many divide the channels: a thread then computes fewer scales that its neighbours
    compute too.
    """
    ending, many = pack_of(maps)
    if many == 1 or maps.shape[-1] % (2 * many):
        return ending, many
    return ending.removesuffix(str(many)) + str(2 * many), 2 * many


register("LRN", CudaLRN, engine="cuda")
