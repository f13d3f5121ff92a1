"""Transport: how an execution sends, receives, copies and joins data in one kind of memory.

An execution calls a transport's methods in the order of its steps. Each returns a request with MPI's `Test` and
`Wait`, or None for work that is done. Device memory, where the work runs in the background, has its transports in
`collectives.execution.device.transports`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from collectives.execution.operations import Operation, wide

if TYPE_CHECKING:
    from mpi4py import MPI


@cache
def message_type(dtype: np.dtype) -> MPI.Datatype:
    """Return the MPI datatype of elements as `as_sent` returns them; unknown types are sent as bytes."""
    from mpi4py import MPI

    kind = INSTEAD.get(dtype.name, dtype)
    found: MPI.Datatype = getattr(MPI, MPI_NAMES.get(kind.str[1:], "BYTE") if kind.isnative else "BYTE")
    return found


MPI_NAMES = {
    **{f"{kind}{n}": f"{name}{8 * n}_T" for kind, name in (("i", "INT"), ("u", "UINT")) for n in (1, 2, 4, 8)},
    **{"f4": "FLOAT", "f8": "DOUBLE", np.dtype(np.longdouble).str[1:]: "LONG_DOUBLE"},
    **{"c8": "C_FLOAT_COMPLEX", "c16": "C_DOUBLE_COMPLEX", np.dtype(np.clongdouble).str[1:]: "C_LONG_DOUBLE_COMPLEX"},
}  # by NumPy's kind and bytes
INSTEAD: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.int16),
    "bfloat16": np.dtype(np.int16),
    "bool": np.dtype(np.uint8),
}


def as_sent(array: np.ndarray) -> np.ndarray:
    """Return an array in a type that MPI has: its own, or another of the same bits."""
    instead = INSTEAD.get(array.dtype.name)
    return array if instead is None else array.view(instead)


class Awaited(Protocol):
    """An operation under way: an MPI request, or work of a device."""

    def Test(self) -> bool:
        """Return whether it is complete."""

    def Wait(self) -> Any:
        """Wait until it is complete."""


@runtime_checkable
class Rounded(Protocol):
    """A message whose numbers are rounded."""

    def give_lost(self, to: np.ndarray) -> None:
        """Add what rounding has lost so far to the elements of another array, and keep it no longer."""


class Transport(Protocol):
    """One execution's access to a kind of memory. `in_flight` is how many steps may be in the background at a time.

    `place` is where the elements of the next message lie: OUT, OWN or a slot.
    """

    in_flight: int
    place: int

    def prepare(self, nbytes: int) -> None:
        """Make room for messages of at most `nbytes` bytes. Called while nothing is under way."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Return an uninitialized array in this memory."""

    def message(self, view: Any, sent: bool) -> Any:
        """Return the form of `view` that `send`, or `receive` and `land`, take. Called once for each, in order."""

    def mark(self) -> None:
        """Make the next run begin after the work that is on the calling thread's stream now."""

    def begin(self) -> Awaited | None:
        """Begin a run; return what it must wait for, or None."""

    def send(self, comm: MPI.Intracomm, message: Any, peer: int, tag: int, synchronous: bool) -> Awaited:
        """Send, after all earlier copies, joins and landings. A synchronous send is complete when it has arrived."""

    def receive(self, comm: MPI.Intracomm, message: Any, peer: int, tag: int) -> Awaited:
        """Post a receive. Receives land in the order of their posting."""

    def land(self, message: Any) -> None:
        """Bring a received message to its elements."""

    def land_joined(self, op: Operation, message: Any, target: Any, source: Any, arrived: Any) -> Awaited | None:
        """Bring a received message to its elements, `arrived`, and join these: target = source op arrived."""

    def copy(self, target: Any, source: Any) -> Awaited | None:
        """Copy elements."""

    def join(self, op: Operation, target: Any, source: Any, arrived: Any) -> Awaited | None:
        """Join elements: target = source op arrived."""

    def divide(self, values: Any, ranks: int) -> None:
        """Turn sums over `ranks` ranks into means."""

    def end(self) -> None:
        """End a run."""

    def follow(self) -> None:
        """Make the calling thread's stream wait for the end of the last run."""

    def free(self) -> None:
        """Wait for the end of the last run; nothing uses this memory afterwards."""

    def break_off(self) -> None:
        """Begin no more messages of a run that a lost rank has broken off."""


class HostTransport:
    """Host memory, which MPI takes as it is. Copies and joins are done at once."""

    in_flight = 1 << 30
    place = -1

    def prepare(self, nbytes: int) -> None:
        """Do nothing: MPI sends from the arrays themselves."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return an uninitialized NumPy array."""
        return np.empty(shape, dtype)

    def message(self, view: np.ndarray, sent: bool) -> list[Any]:
        """Return the view and its MPI datatype."""
        return [as_sent(view), message_type(view.dtype)]

    def mark(self) -> None:
        """Do nothing: host memory has no streams."""

    def begin(self) -> None:
        """Do nothing: a run may begin at once."""

    def send(self, comm: MPI.Intracomm, message: list[Any], peer: int, tag: int, synchronous: bool) -> MPI.Request:
        """Send, with MPI's synchronous mode where asked."""
        return comm.Issend(message, peer, tag) if synchronous else comm.Isend(message, peer, tag)

    def receive(self, comm: MPI.Intracomm, message: list[Any], peer: int, tag: int) -> MPI.Request:
        """Post a receive."""
        return comm.Irecv(message, peer, tag)

    def land(self, message: list[Any]) -> None:
        """Do nothing: MPI receives into the elements."""

    def land_joined(
        self, op: Operation, message: Any, target: np.ndarray, source: np.ndarray, arrived: np.ndarray
    ) -> None:
        """Land a message; join."""
        self.land(message)
        self.join(op, target, source, arrived)

    def copy(self, target: np.ndarray, source: np.ndarray) -> None:
        """Copy elements."""
        np.copyto(target, source)

    def join(self, op: Operation, target: np.ndarray, source: np.ndarray, arrived: np.ndarray) -> None:
        """Join elements; float16 is joined in float32."""
        op.join(source, arrived, target, wide(target.dtype))

    def divide(self, values: np.ndarray, ranks: int) -> None:
        """Divide by the number of ranks."""
        np.divide(values, ranks, out=values, dtype=wide(values.dtype), casting="same_kind")

    def end(self) -> None:
        """Do nothing: all work is done."""

    def follow(self) -> None:
        """Do nothing: host memory has no streams."""

    def free(self) -> None:
        """Do nothing: the memory is Python's."""

    def break_off(self) -> None:
        """Do nothing: messages begin at once."""
