"""Device: what is asked of a GPU and its library. CuPy's is in cuda.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from collectives.execution.operations import Operation


class Event(Protocol):
    """A mark in a stream, awaited like an MPI request; one that was never recorded is done."""

    def record(self, stream: Any) -> None:
        """Mark what the stream has to do by now. Whoever waits for an earlier mark goes on waiting for that."""

    def Test(self) -> bool:
        """Say whether the device has come this far."""

    def Wait(self) -> None:
        """Wait until it has."""


class Stream(Protocol):
    """Work that a device does in order, in the background."""

    ptr: int  # as libraries take it

    def wait_event(self, event: Any) -> None:
        """Let what comes next begin after the event; the caller goes on at once."""

    def __enter__(self) -> Any:
        """Make it the calling thread's."""

    def __exit__(self, *error: Any) -> Any:
        """Give the thread the stream that it had before."""


class Device(Protocol):
    """A GPU. All that takes a stream only puts work on it.

    Arrays are flat and contiguous, with numpy's `dtype`, `size`, `nbytes`, `reshape`, `view` and slices, and a
    `__cuda_array_interface__`.
    """

    name: str
    identity: str  # the same in two processes if it is the same GPU

    def nccl(self) -> Any:
        """Return NCCL, with the names of `cupy.cuda.nccl`. Raise ArgumentError where it can't be loaded."""

    def holds(self, array: Any) -> bool:
        """Say whether an array lies in such a device's memory."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, stream: Any = None) -> Any:
        """Return an array with any content, which may still be in use on the caller's stream, or the one given."""

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Return an array of zeros."""

    def pinned(self, nbytes: int) -> np.ndarray:
        """Return bytes of host memory that the device copies from and to by itself."""

    def stream(self) -> Stream:
        """Return a new stream, which waits for no other unless it is told to."""

    def current(self) -> Stream:
        """Return the stream that the calling thread works on."""

    def event(self, patient: bool = False) -> Event:
        """Return a new event; a thread that waits for a patient one leaves its core to others."""

    def copy(self, target: Any, source: Any, stream: Any) -> None:
        """Copy between arrays of the device, or one of it and one of pinned memory; bytes count, not types."""

    def join(self, op: Operation, target: Any, source: Any, arrived: Any, stream: Any) -> None:
        """Join elements: target = source op arrived; they may be the same. float16 is joined in float32."""

    def divide(self, values: Any, ranks: int, stream: Any) -> None:
        """Turn sums over so many ranks into means."""

    def join_all(
        self, op: Operation, targets: PointerTable, sources: PointerTable, part: slice, dtype: np.dtype, stream: Any
    ) -> None:
        """Join a part of all sources, in their order, and write it to all targets, which may be among them."""

    def table(self, pointers: Sequence[int], stream: Any) -> PointerTable:
        """Return pointers as `join_all` takes them on that stream."""

    def copy_from(self, target: Any, pointer: int, stream: Any) -> None:
        """Copy from a pointer that `open` gave."""

    def export(self, array: Any) -> tuple[bytes, int]:
        """Return a handle of HANDLE bytes to the memory that an array lies in, and its offset there.

        Raise ArgumentError where there is none.
        """

    def open(self, handle: bytes) -> int:
        """Return a pointer to the memory of another process's handle. Raise ArgumentError where that can't be."""

    def close(self, pointer: int) -> None:
        """Let go of what `open` gave."""


HANDLE = 64  # bytes
PointerTable = Any
