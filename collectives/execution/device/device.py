"""Device: the protocol of a GPU and its library. cuda.py has CuPy's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from collectives.execution.operations import Operation


class Event(Protocol):
    """A point on a stream, with the methods of a request. An event that was never recorded is complete."""

    def record(self, stream: Any) -> None:
        """Mark the work that is on the stream now. A wait for an earlier mark still waits for that mark."""

    def Test(self) -> bool:
        """Return whether the device has reached it."""

    def Wait(self) -> None:
        """Wait until the device has reached it."""


class Stream(Protocol):
    """Work that a device does in order, in the background."""

    ptr: int  # the handle that libraries take

    def wait_event(self, event: Any) -> None:
        """Make the work that follows wait for the event; the caller does not wait."""

    def __enter__(self) -> Any:
        """Make it the calling thread's stream."""

    def __exit__(self, *error: Any) -> Any:
        """Restore the thread's previous stream."""


class Device(Protocol):
    """A GPU. Methods that take a stream only put work on it.

    Arrays are flat and contiguous, with NumPy's `dtype`, `size`, `nbytes`, `reshape`, `view` and slices, and a
    `__cuda_array_interface__`.
    """

    name: str
    identity: str  # equal in two processes for the same GPU

    def nccl(self) -> Any:
        """Return NCCL with the names of `cupy.cuda.nccl`. Raise ArgumentError where it can't be loaded."""

    def holds(self, array: Any) -> bool:
        """Return whether `array` lies in this device's memory."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, stream: Any = None) -> Any:
        """Return an uninitialized array, which may still be in use on the caller's stream, or on `stream`."""

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Return an array of zeros."""

    def pinned(self, nbytes: int) -> np.ndarray:
        """Return `nbytes` bytes of host memory that the device copies from and to by itself."""

    def stream(self) -> Stream:
        """Return a new stream, which waits for no other stream by itself."""

    def current(self) -> Stream:
        """Return the calling thread's stream."""

    def event(self, patient: bool = False) -> Event:
        """Return a new event; waiting for a `patient` one leaves the core to other threads."""

    def copy(self, target: Any, source: Any, stream: Any) -> None:
        """Copy between two arrays of the device, or one of the device and one in pinned memory; types are ignored."""

    def join(self, op: Operation, target: Any, source: Any, arrived: Any, stream: Any) -> None:
        """Join elements: target = source op arrived. The arrays may be the same; float16 is joined in float32."""

    def divide(self, values: Any, ranks: int, stream: Any) -> None:
        """Turn sums over `ranks` ranks into means."""

    def join_all(
        self, op: Operation, targets: PointerTable, sources: PointerTable, part: slice, dtype: np.dtype, stream: Any
    ) -> None:
        """Join a part of all sources, in their order, and write it to all targets, which may be among the sources."""

    def encode(self, codec: str, values: Any, message: Any, lost: Any, spreads: bool, stream: Any) -> None:
        """Write float32 values as the bytes of a message, by a codec's name.

        `lost`, None for nothing, is added to the values first; what rounding loses is then there. With `spreads` the
        values become what arrives.
        """

    def decode(self, codec: str, message: Any, values: Any, stream: Any) -> None:
        """Write a message's numbers into float32 values."""

    def decode_join(self, op: Operation, codec: str, target: Any, source: Any, message: Any, stream: Any) -> None:
        """Join a message's numbers: target = source op number. Target and source may be the same."""

    def table(self, pointers: Sequence[int], stream: Any) -> PointerTable:
        """Return pointers in the form that `join_all` takes on that stream."""

    def copy_to(self, pointer: int, source: Any, stream: Any) -> None:
        """Copy to a pointer into this device's memory, or into what `open` returned."""

    def copy_from(self, target: Any, pointer: int, stream: Any) -> None:
        """Copy from a pointer of the same kind."""

    def export(self, array: Any) -> tuple[bytes, int]:
        """Return a handle of HANDLE bytes to the allocation of an array, and the array's offset in it, in bytes.

        Raise ArgumentError for memory that can't be shared.
        """

    def open(self, handle: bytes) -> int:
        """Return a pointer to the memory of another process's handle. Raise ArgumentError without access to it."""

    def close(self, pointer: int) -> None:
        """Unmap what `open` returned."""


HANDLE = 64  # bytes
PointerTable = Any
