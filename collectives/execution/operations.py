"""Operations: how elements are joined, in the arrays' type; halves of 16 bits are joined in float32."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from collectives.errors import ArgumentError

TYPES = tuple(np.dtype(name) for name in ("float32", "float64", "float16", "int32", "int64"))  # on all devices
NUMBERS, WHOLE, LOGICAL = "iufc", "iu", "iub"  # kinds of NumPy's types


class Operation(NamedTuple):
    """A reduction: the ufunc that joins two arrays, and whether the result is divided by the number of ranks.

    `kinds`: those of NumPy's types that it takes. `mpi`: the name of MPI's own. `is_logical`: it takes numbers as true
    or false.
    """

    name: str
    ufunc: np.ufunc
    divided: bool = False
    kinds: str = NUMBERS
    mpi: str = ""
    is_logical: bool = False

    def exact(self, dtype: np.dtype) -> bool:
        """Return whether two arrays are joined in one step, without a partial result in another type."""
        return not self.divided and wide(dtype) == dtype

    def join(self, one: np.ndarray, other: np.ndarray, out: np.ndarray, partial: np.dtype) -> np.ndarray:
        """Write the join of two arrays, computed in type `partial`, to `out`, and return it."""
        dtype = None if self.is_logical else partial
        found: np.ndarray = self.ufunc(one, other, out=out, dtype=dtype, casting="same_kind")
        return found

    @property
    def in_mpi(self) -> Any:
        """Return MPI's operation."""
        from mpi4py import MPI

        return getattr(MPI, self.mpi)


OPERATIONS = {
    op.name: op
    for op in (
        Operation("sum", np.add, mpi="SUM"),
        Operation("max", np.maximum, kinds="iufb", mpi="MAX"),
        Operation("min", np.minimum, kinds="iufb", mpi="MIN"),
        Operation("mean", np.add, divided=True, kinds="fc", mpi="SUM"),
    )
}  # on all devices
KNOWN = OPERATIONS | {
    op.name: op
    for op in (
        Operation("prod", np.multiply, mpi="PROD"),
        Operation("land", np.logical_and, kinds=LOGICAL, mpi="LAND", is_logical=True),
        Operation("lor", np.logical_or, kinds=LOGICAL, mpi="LOR", is_logical=True),
        Operation("lxor", np.logical_xor, kinds=LOGICAL, mpi="LXOR", is_logical=True),
        Operation("band", np.bitwise_and, kinds=LOGICAL, mpi="BAND"),
        Operation("bor", np.bitwise_or, kinds=LOGICAL, mpi="BOR"),
        Operation("bxor", np.bitwise_xor, kinds=LOGICAL, mpi="BXOR"),
    )
}


def operation(given: Any, dtype: np.dtype) -> Operation:
    """Return the operation, by our name or as MPI's object, for elements of `dtype`.

    Raise ArgumentError for an unknown operation, and for a type whose elements it can't join.
    """
    name = given if isinstance(given, str) else _name_of(given)
    if name not in KNOWN:
        shown = f"'{name}'" if isinstance(given, str) else name
        raise ArgumentError(f"unknown operation {shown}; known operations: {' '.join(KNOWN)}")
    kind = "f" if is_half(dtype) else dtype.kind
    if kind not in NUMBERS + "b" or not dtype.isnative:
        raise ArgumentError(f"arrays of {dtype} can't be reduced; types that can: integers, floats, complex, bool")
    if KNOWN[name].divided and kind in WHOLE:
        raise ArgumentError(f"the mean of {dtype} is not {dtype}; use sum")
    if kind not in KNOWN[name].kinds:
        able = [one.name for one in KNOWN.values() if kind in one.kinds]
        raise ArgumentError(f"there is no {name} of {dtype}; operations for it: {' '.join(able)}")
    return KNOWN[name]


def _name_of(given: Any) -> str:
    """Return our name of MPI's operation; the type's name for anything else."""
    from mpi4py import MPI

    if isinstance(given, MPI.Op):
        ours = (one.name for one in KNOWN.values() if not one.divided and one.in_mpi == given)
        return next(ours, "of MPI, which has none of ours")
    return type(given).__name__


@cache
def is_half(dtype: np.dtype) -> bool:
    """Return whether elements are floats of 16 bits, float16 or ml_dtypes' bfloat16."""
    return dtype.name in ("float16", "bfloat16")


def wide(dtype: np.dtype) -> np.dtype:
    """Return the type of partial results: float32 for floats of 16 bits, else `dtype`."""
    return np.dtype(np.float32) if is_half(dtype) else dtype


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
            partial = op.join(partial, block, scratch, scratch.dtype)
        else:
            partial = op.join(partial, block, out, out.dtype)
    if op.divided:
        np.divide(partial, ranks, out=out, dtype=scratch.dtype, casting="same_kind")
    elif partial is not out:
        np.copyto(out, partial, casting="same_kind")
