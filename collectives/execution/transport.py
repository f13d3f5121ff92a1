"""Transport: how an execution sends, receives, copies and joins data, by the kind of memory that it lies in.

An execution calls a memory's methods in the order of its steps. What they return is awaited like an MPI request, by
`Test` and `Wait`, which know no argument here; None stands for what is done already. Device memory, where all this
goes on in the background, is in collectives.execution.device.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from collectives.execution.operations import Operation, wide

if TYPE_CHECKING:
    from mpi4py import MPI


@cache
def message_type(dtype: np.dtype) -> MPI.Datatype:
    """Return MPI's name of a type; elements of half precision travel as pairs of bytes."""
    from mpi4py import MPI

    names = {"f4": MPI.FLOAT, "f8": MPI.DOUBLE, "f2": MPI.INT16_T, "i4": MPI.INT32_T, "i8": MPI.INT64_T}
    return names.get(dtype.str[1:], MPI.BYTE)


class Request(Protocol):
    """Something under way: an MPI request, or work of a device."""

    def Test(self) -> bool: ...

    def Wait(self) -> Any: ...


class Transport(Protocol):
    """One execution's hold on a kind of memory; `in_flight` is how many steps may be under way at once."""

    in_flight: int

    def prepare(self, nbytes: int) -> None:
        """Get ready for messages of at most so many bytes. Called when nothing is under way."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Return an array of this memory."""

    def message(self, view: Any, sent: bool) -> Any:
        """Return what `send`, or `receive` and `land`, take for these elements. Called once for each, in order."""

    def mark(self) -> None:
        """Note that the next run may begin when what the calling thread has put on its stream by now is done."""

    def begin(self) -> Request | None:
        """Begin a run."""

    def send(self, comm: MPI.Intracomm, message: Any, peer: int, tag: int, synchronous: bool) -> Request:
        """Send, after all that was copied, joined or landed before; if `synchronous`, it ends on arrival."""

    def receive(self, comm: MPI.Intracomm, message: Any, peer: int, tag: int) -> Request:
        """Receive; of those under way the first is landed first."""

    def land(self, message: Any) -> None:
        """Bring what has been received to its elements."""

    def copy(self, target: Any, source: Any) -> Request | None:
        """Copy elements."""

    def join(self, op: Operation, target: Any, source: Any, arrived: Any) -> Request | None:
        """Join elements: target = source op arrived."""

    def divide(self, values: Any, ranks: int) -> None:
        """Turn sums over so many ranks into means."""

    def end(self) -> None:
        """End a run."""

    def follow(self) -> None:
        """Have what the calling thread puts on its stream from now on wait for the end of the last run."""

    def free(self) -> None:
        """Wait for the end of the last run: then nothing uses this memory any more."""


class HostTransport:
    """Transport of the processor, which MPI takes as it is; what is done to it is done at once."""

    in_flight = 1 << 30

    def prepare(self, nbytes: int) -> None:
        pass

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        return np.empty(shape, dtype)

    def message(self, view: np.ndarray, sent: bool) -> list:
        return [view.view(np.int16) if view.dtype == np.float16 else view, message_type(view.dtype)]

    def mark(self) -> None:
        pass

    def begin(self) -> None:
        pass

    def send(self, comm: MPI.Intracomm, message: list, peer: int, tag: int, synchronous: bool) -> MPI.Request:
        return comm.Issend(message, peer, tag) if synchronous else comm.Isend(message, peer, tag)

    def receive(self, comm: MPI.Intracomm, message: list, peer: int, tag: int) -> MPI.Request:
        return comm.Irecv(message, peer, tag)

    def land(self, message: list) -> None:
        pass

    def copy(self, target: np.ndarray, source: np.ndarray) -> None:
        np.copyto(target, source)

    def join(self, op: Operation, target: np.ndarray, source: np.ndarray, arrived: np.ndarray) -> None:
        op.ufunc(source, arrived, out=target, dtype=wide(target.dtype), casting="same_kind")

    def divide(self, values: np.ndarray, ranks: int) -> None:
        np.divide(values, ranks, out=values, dtype=wide(values.dtype), casting="same_kind")

    def end(self) -> None:
        pass

    def follow(self) -> None:
        pass

    def free(self) -> None:
        pass
