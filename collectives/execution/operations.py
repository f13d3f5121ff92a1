"""Operations: sum, max, min and mean of elements, in the arrays' type; float16 is joined in float32."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from collectives.errors import ArgumentError

TYPES = tuple(np.dtype(name) for name in ("float32", "float64", "float16", "int32", "int64"))


class Operation(NamedTuple):
    """A reduction: the ufunc that joins two arrays, and whether the result is divided by the number of ranks."""

    name: str
    ufunc: np.ufunc
    divided: bool = False

    def exact(self, dtype: np.dtype) -> bool:
        """Return whether two arrays are joined in one step, without a partial result in another type."""
        return not self.divided and wide(dtype) == dtype


OPERATIONS = {
    op.name: op
    for op in (
        Operation("sum", np.add),
        Operation("max", np.maximum),
        Operation("min", np.minimum),
        Operation("mean", np.add, divided=True),
    )
}


def operation(name: str, dtype: np.dtype) -> Operation:
    """Return the operation `name` for elements of `dtype`.

    Raise ArgumentError for an unknown operation, an unknown type, and the mean of integers.
    """
    if not isinstance(name, str) or name not in OPERATIONS:
        given = f"'{name}'" if isinstance(name, str) else type(name).__name__
        raise ArgumentError(f"unknown operation {given}; known operations: {' '.join(OPERATIONS)}")
    if dtype not in TYPES:
        raise ArgumentError(f"arrays of {dtype} can't be reduced; types that can: {' '.join(map(str, TYPES))}")
    if OPERATIONS[name].divided and dtype.kind == "i":
        raise ArgumentError(f"the mean of {dtype} is not {dtype}; use sum")
    return OPERATIONS[name]


def wide(dtype: np.dtype) -> np.dtype:
    """Return the type of partial results: float32 for float16, else `dtype`."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def join(op: Operation, blocks: Iterable[np.ndarray], ranks: int, out: np.ndarray, scratch: np.ndarray) -> None:
    """Write the reduction of the ranks' `blocks`, in rank order, to `out`, which may be one of them.

    `scratch` has their length and their wide type. A block is no longer read once the next but one is taken from the
    iterator; `out` is written last.
    """
    partial = out
    for k, block in enumerate(blocks):
        if k == 0:
            partial = block
        elif k < ranks - 1 or not op.exact(out.dtype):
            partial = op.ufunc(partial, block, out=scratch, dtype=scratch.dtype)
        else:
            partial = op.ufunc(partial, block, out=out)
    if op.divided:
        np.divide(partial, ranks, out=out, dtype=scratch.dtype, casting="same_kind")
    elif partial is not out:
        np.copyto(out, partial, casting="same_kind")
