"""Concat, Slice and Split by kernels: one launch for each eight parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from scaffe.blob import around
from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.launcher import Launcher, divisor
from scaffe.layers.concat import Concat
from scaffe.layers.layer import Blobs, register
from scaffe.layers.slice import Slice
from scaffe.layers.split import Split

MOST = 8  # parts of a launch; PARTS of parts.cu
UNITS = 16, 4, 2  # bytes; those that parts.cu has kernels for
NONE = np.uint64(0)  # a null pointer, for a part that is left out


def move(engine: Launcher, kernel: str, whole: Any, axis: int, sizes: Sequence[int], parts: Sequence[Any]) -> None:
    """Launch `kernel`: "gather" copies the parts into the whole, "scatter" the whole into the parts.

    Part k has `sizes[k]` of the whole's elements on `axis`. A part that is None is left out.
    """
    outer, size, inner = around(whole.shape, axis)
    unit = _unit(engine, [size * inner for size in sizes], [whole, *(part for part in parts if part is not None)])
    pitch, *ends = (end * inner * whole.itemsize // unit for end in (size, *accumulate(sizes)))
    for k in range(0, len(parts), MOST):
        to, some = ends[k : k + MOST], [NONE if part is None else part for part in parts[k : k + MOST]]
        first, last, missing = ends[k - 1] if k else 0, to[-1], MOST - len(to)
        columns, lacking = last - first, [NONE] * missing
        numbers = *map(np.int64, (pitch, first, columns)), divisor(columns), *some, *lacking
        to = [np.int64(end) for end in (*to, *[last] * missing)]
        engine.over("parts", f"{kernel}_{unit}", outer * columns, whole, *numbers, *to)


def _unit(engine: Launcher, lengths: Sequence[int], arrays: Sequence[Any]) -> int:
    """Return the bytes that a thread moves at once: of these, the most that divide each row of elements and address."""
    nbytes = [length * arrays[0].itemsize for length in lengths]
    places = [engine.gpu.place(array) for array in arrays]
    return next(unit for unit in UNITS if not any(number % unit for number in (*nbytes, *places)))


class CudaConcat(Concat):
    """Concat along `axis`."""

    capturable = True

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self._move("gather", top[0].array, bottom, [blob.array for blob in bottom])

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        diffs = [blob.diff_array if down else None for blob, down in zip(bottom, propagate_down, strict=True)]
        self._move("scatter", top[0].diff_array, bottom, diffs)

    def _move(self, kernel: str, whole: Any, bottom: Blobs, parts: Sequence[Any]) -> None:
        move(engine_of(self), kernel, whole, self.axis, [blob.shape[self.axis] for blob in bottom], parts)


class CudaSlice(Slice):
    """Slice along `axis`."""

    capturable = True

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        self._move("scatter", bottom[0].array, top, [blob.array for blob in top])

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            self._move("gather", bottom[0].diff_array, top, [blob.diff_array for blob in top])

    def _move(self, kernel: str, whole: Any, top: Blobs, parts: Sequence[Any]) -> None:
        move(engine_of(self), kernel, whole, self.axis, [blob.shape[self.axis] for blob in top], parts)


class CudaSplit(Split):
    """Split: the tops share the bottom's values; a kernel adds their gradients."""

    capturable = True

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        total, diffs = bottom[0].diff_array, [blob.diff_array for blob in top]
        while diffs:
            some, diffs = diffs[:MOST], diffs[MOST:]
            engine_of(self).over("parts", "sum_of", total.size, total, *some, *[NONE] * (MOST - len(some)), each=4)
            diffs = [total, *diffs] if diffs else []


register("Concat", CudaConcat, engine="cuda")
register("Slice", CudaSlice, engine="cuda")
register("Split", CudaSplit, engine="cuda")
