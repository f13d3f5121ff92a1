"""Products of float32 matrices by oneDNN's sgemm, with their arguments prepared."""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import is_not
from typing import Generic, Protocol, TypeVar

import numpy as np

from scaffe.devices.kernel_run import KernelRun, Tensor
from scaffe.engine import address
from scaffe.engines.onednn.library import Library
from scaffe.errors import OnednnError

Made = TypeVar("Made")


class Computes(Protocol):
    """The engine that a product is computed by: its library, and who is told of each run, if anybody."""

    library: Library
    watcher: Callable[[KernelRun], object] | None


class Sgemm:
    """The product of `a` and `b`, written into `out`; `run` is one call of the library.

    Each of a and b may be a transposed view; the rows of all may lie apart. Raise OnednnError for other arrays.
    """

    def __init__(self, engine: Computes, a: np.ndarray, b: np.ndarray, out: np.ndarray):
        (rows, depth), columns = a.shape, b.shape[1]
        (a_order, a_step), (b_order, b_step) = _order(a), _order(b)
        self._engine, self._call = engine, engine.library.dll.dnnl_sgemm
        self._given = a_order, b_order, rows, columns, depth, 1.0, address(a), a_step, address(b), b_step
        order, step = _order(out)
        if order != b"N":
            raise OnednnError("a product is written in C order")
        self._out = address(out), step
        self.a, self.b, self.out = a, b, out  # whose memory it uses

    def run(self, add: bool = False) -> None:
        """Write the product, or add it to what is there. Raise OnednnError where the library fails."""
        start = time.perf_counter()
        if status := self._call(*self._given, float(add), *self._out):
            self._engine.library.check(status, "sgemm")
        if self._engine.watcher:
            read, written = (Tensor(address(array), "float32") for array in (self.a, self.out))
            moved = self.a.nbytes + self.b.nbytes + self.out.nbytes * (1 + add)
            self._engine.watcher(KernelRun("sgemm", time.perf_counter() - start, read, written, moved))


class MadeFor(Generic[Made]):
    """What `make(*arrays)` returns, made anew only for other arrays than in the last call.

    A pass over blobs whose memory stays where it is looks up no address: in a small net that takes as long as a kernel.
    """

    def __init__(self, make: Callable[..., Made]):
        self._make = make
        self._arrays: tuple[np.ndarray, ...] = ()
        self._made: Made

    def __call__(self, *arrays: np.ndarray) -> Made:
        if len(arrays) != len(self._arrays) or any(map(is_not, arrays, self._arrays)):
            self._made, self._arrays = self._make(*arrays), arrays
        return self._made


def _order(matrix: np.ndarray) -> tuple[bytes, int]:
    """Return sgemm's letter for a matrix, N for C order and T for Fortran order, and its leading dimension."""
    (rows, columns), flags = matrix.shape, float32(matrix).flags
    down, across = (stride // matrix.itemsize for stride in matrix.strides)
    if flags.c_contiguous or (across == 1 and down >= columns):
        return b"N", max(1, columns if flags.c_contiguous else down)
    if flags.f_contiguous or (down == 1 and across >= rows):
        return b"T", max(1, rows if flags.f_contiguous else across)
    raise OnednnError(f"a matrix of shape {matrix.shape}, strides {matrix.strides}: expected C or Fortran order")


def float32(array: np.ndarray) -> np.ndarray:
    """Return an array of float32. Raise OnednnError for another type."""
    if array.dtype != np.float32:
        raise OnednnError(f"oneDNN computes in float32, got an array of {array.dtype}")
    return array
