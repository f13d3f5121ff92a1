"""LibraryPlan: the MPI library's own collectives, behind the same plans as ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from collectives.execution.node import Requests
from collectives.execution.operations import Operation
from collectives.execution.peer import address
from collectives.execution.plans import Array, Plan, divide, part_of
from collectives.execution.transport import as_sent, message_type
from collectives.loss import raises_rank_lost
from collectives.verbs import VERBS, counts_of

if TYPE_CHECKING:
    from mpi4py import MPI

V = "allgather", "gather", "scatter"  # whose blocks may differ in length: the library's name ends in v


class LibraryPlan(Plan):
    """The MPI library's own collective `what`. `bounds` says where the ranks' blocks begin, if it has any."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        what: str,
        op: Operation | None,
        root: int,
        dtype: np.dtype,
        bounds: Sequence[int] = (),
    ):
        self.comm, self.what, self.op, self.root, self.type = comm, what, op, root, message_type(dtype)
        self.bounds, self._name = bounds, what + "v" * (what in V)
        self._room: Array = None  # of a result that the library can't put into its place
        self._mpi_op = op.in_mpi if op else None

    def bind(self, send: np.ndarray, recv: Array) -> None:
        """Bind the library's call to the arrays."""
        super().bind(send, recv)
        self._call = partial(getattr(self.comm, self._name.capitalize()), *self._arguments(send, recv))

    def call_over(self, send: np.ndarray, recv: Array) -> Callable[[], object] | None:
        """Return the library's call, where the result needs no more."""
        if self.op is not None and (self.op.divided or (self.what == "reduce_scatter" and recv is send)):
            return None
        arguments = (as_buffer(one) for one in self._arguments(send, recv))
        return partial(getattr(self.comm, self._name.capitalize()), *arguments)

    @raises_rank_lost
    def run(self) -> None:
        """Call the blocking collective, after what the communicator has under way."""
        self.line.finish()
        self._call()
        if self.op:
            self._complete()

    def steps(self, wait: bool) -> Requests:
        """Start the non-blocking collective; yield its request."""
        yield getattr(self.comm, f"I{self._name}")(*self._arguments(self.send, self.recv))
        if self.op:
            self._complete()

    def _complete(self) -> None:
        """Bring the result to its place; turn a sum into a mean where that is asked for."""
        assert self.op is not None
        if self.recv is None or not (self.op.divided or self._room is not None):
            return
        part = VERBS[self.what].result(self.comm.rank, self.root, self.bounds or (0, self.recv.size))
        result = part_of(self.recv, *part)
        if self._room is not None:
            np.copyto(result, self._room)
        if self.op.divided:
            divide(result, self.comm.size)

    def _arguments(self, send: np.ndarray, recv: Array) -> list[Any]:
        """Return the arguments of the library's call."""
        return ARGUMENTS[self.what](self, send, recv)

    def typed(self, array: Array) -> list[Any] | None:
        """Return an array with its type."""
        return None if array is None else [as_sent(array), self.type]

    def blocks(self, array: Array) -> list[Any] | None:
        """Return an array of all ranks' blocks with their lengths, places and type."""
        return None if array is None else [as_sent(array), (counts_of(self.bounds), self.bounds[:-1]), self.type]

    def joined(self, send: np.ndarray, recv: Array) -> list[Any]:
        """Return the contribution, the result and the operation, of a result as long as the contribution."""
        from mpi4py import MPI

        in_place = recv is not None and address(recv) == address(send)
        return [MPI.IN_PLACE if in_place else self.typed(send), self.typed(recv), self._mpi_op]

    def scattered(self, send: np.ndarray, recv: Array) -> list[Any]:
        """Return the arguments of a reduce_scatter; in place the library would put each result at the beginning."""
        start, stop = self.bounds[self.comm.rank : self.comm.rank + 2]
        self._room = np.empty(stop - start, send.dtype) if recv is send else None
        result = recv if self._room is None else self._room
        return [self.typed(send), self.typed(result), counts_of(self.bounds), self._mpi_op]

    def brought(self, send: np.ndarray, recv: Array) -> list[Any] | Any:
        """Return what the library is told of the contribution."""
        from mpi4py import MPI

        return MPI.IN_PLACE if recv is send else self.typed(send)

    def spread(self, send: np.ndarray, recv: Array) -> list[Any]:
        """Return the arguments of a scatter."""
        from mpi4py import MPI

        is_root = self.comm.rank == self.root
        result = MPI.IN_PLACE if is_root and recv is send else self.typed(recv)
        return [self.blocks(send if is_root else None), result, self.root]


def as_buffer(given: Any) -> Any:
    """Return an argument of a call that is made often: mpi4py takes less time over its own buffers than over arrays."""
    from mpi4py import MPI

    is_on_host = isinstance(given, list) and isinstance(given[0], np.ndarray)
    return [MPI.buffer(given[0]), *given[1:]] if is_on_host else given


Arguments = Callable[[LibraryPlan, np.ndarray, Array], list[Any]]
ARGUMENTS: dict[str, Arguments] = {
    "reduce": lambda plan, send, recv: [*plan.joined(send, recv), plan.root],
    "bcast": lambda plan, send, recv: [plan.typed(send), plan.root],
    "allreduce": lambda plan, send, recv: plan.joined(send, recv),
    "reduce_scatter": lambda plan, send, recv: plan.scattered(send, recv),
    "allgather": lambda plan, send, recv: [plan.brought(send, recv), plan.blocks(recv)],
    "alltoall": lambda plan, send, recv: [plan.brought(send, recv), plan.typed(recv)],
    "gather": lambda plan, send, recv: [plan.brought(send, recv), plan.blocks(recv), plan.root],
    "scatter": lambda plan, send, recv: plan.spread(send, recv),
    "barrier": lambda plan, send, recv: [],
}
