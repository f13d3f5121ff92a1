"""Concat, Slice and Split by kernels: one launch for each eight parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from scaffe.blob import around
from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.forms import arrays, data, diff, kind
from scaffe.engines.cuda.launcher import Launcher, divisor
from scaffe.engines.cuda.typed_blobs import TypedLayer
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


class CudaConcat(TypedLayer, Concat):
    """Concat along `axis`."""

    capturable = True

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        is_last, (*parts, whole) = arrays([*map(data, bottom)], [data(top[0])])
        self._move("gather", is_last, whole, bottom, parts)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        downs = [diff(blob) for blob, down in zip(bottom, propagate_down, strict=True) if down]
        is_last, (whole, *found) = arrays([diff(top[0])], downs)
        parts = [found.pop(0) if down else None for down in propagate_down]
        self._move("scatter", is_last, whole, bottom, parts)

    def _move(self, kernel: str, is_last: bool, whole: Any, bottom: Blobs, parts: Sequence[Any]) -> None:
        axis = axis_of(self.axis, whole, is_last)
        move(engine_of(self), kernel, whole, axis, [blob.shape[self.axis] for blob in bottom], parts)


class CudaSlice(TypedLayer, Slice):
    """Slice along `axis`."""

    capturable = True

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        is_last, (whole, *parts) = arrays([data(bottom[0])], [*map(data, top)])
        self._move("scatter", is_last, whole, top, parts)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0]:
            is_last, (*parts, whole) = arrays([*map(diff, top)], [diff(bottom[0])])
            self._move("gather", is_last, whole, top, parts)

    def _move(self, kernel: str, is_last: bool, whole: Any, top: Blobs, parts: Sequence[Any]) -> None:
        axis = axis_of(self.axis, whole, is_last)
        move(engine_of(self), kernel, whole, axis, [blob.shape[self.axis] for blob in top], parts)


class CudaSplit(TypedLayer, Split):
    """Split: the tops share the bottom's values; a kernel adds their gradients."""

    capturable = True

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        for blob in top:
            blob.values.home = None
        if bottom[0].values.home is None:
            super().forward(bottom, top)
            return
        bottom[0].values.settle()
        for blob in top:
            blob.values.home = bottom[0].values.home
            blob.values.overwritten()

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        _, (*diffs, total) = arrays([*map(diff, top)], [diff(bottom[0])])
        kernel, each = f"sum_of{kind(total)}", 16 // total.itemsize
        while diffs:
            some, diffs = diffs[:MOST], diffs[MOST:]
            engine_of(self).over("parts", kernel, total.size, total, *some, *[NONE] * (MOST - len(some)), each=each)
            diffs = [total, *diffs] if diffs else []


def axis_of(axis: int, array: Any, is_last: bool) -> int:
    """Return where an axis of a blob is in its array."""
    if not is_last or axis == 0:
        return axis
    return len(array.shape) - 1 if axis == 1 else axis - 1


register("Concat", CudaConcat, engine="cuda")
register("Slice", CudaSlice, engine="cuda")
register("Split", CudaSplit, engine="cuda")
