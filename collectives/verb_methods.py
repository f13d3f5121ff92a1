"""VerbMethods: the collectives of a Communicator, one method each, and their non-blocking forms.

All are collective: the ranks make the same calls in the same order. Arrays are contiguous: NumPy's, CuPy's, or of any
object with the buffer protocol, `__array_interface__`, `__cuda_array_interface__` or DLPack, such as a PyTorch tensor.
Arguments that several methods have:

- `recv`: the result; without it, or with MPI.IN_PLACE for either array, the result replaces the contribution.
- `op`: "sum", "prod", "max", "min", "mean", "land", "lor", "lxor", "band", "bor", "bxor", or MPI's own, as MPI.SUM.
- `counts`: the elements of each rank's block, a number for each rank; by default rank r of P has the elements from
  n r // P up to n (r + 1) // P of a vector of n.
- `how`: `algorithm` ("auto", "mpi", "slices", "nccl" for device arrays, a schedule's name, or "leaders-NAME");
  `chain_size`, ranks in each group of a hierarchy whose name has none; `chunk_bytes`, bytes in each message of a
  schedule, 0 for the table's; `check`, to compare all ranks' arguments again.

Each raises what Communicator says. A form with i returns a Request at once, and raises there or at its wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collectives.calls import Calls
from collectives.objects import Objects
from collectives.request import Request


class VerbMethods(Calls):
    """The methods of a Communicator that move data."""

    @property
    def objects(self) -> Objects:
        """Return the collectives of Python objects."""
        return Objects(self)

    def reduce(
        self,
        send: Any,
        recv: Any = None,
        op: Any = "sum",
        root: int = 0,
        algorithm: str = "auto",
        chain_size: int | None = None,
        chunk_bytes: int = 0,
        check: bool = False,
    ) -> None:
        """Reduce the ranks' `send` into the root's `recv`.

        Other ranks need no `recv`; theirs is not written. `send` has the same size and type on all ranks: integers,
        floats, complex or bool, as the operation takes them. Floats of 16 bits are joined in float32.
        """
        self._call(send, recv, "reduce", op, root, algorithm, chain_size, chunk_bytes, check, None)

    def ireduce(
        self,
        send: Any,
        recv: Any = None,
        op: Any = "sum",
        root: int = 0,
        algorithm: str = "auto",
        chain_size: int | None = None,
        chunk_bytes: int = 0,
        check: bool = False,
    ) -> Request:
        """Start `reduce`; return its request."""
        return self._start(send, recv, ("reduce", op, root, algorithm, chain_size, chunk_bytes, check, None))

    def allreduce(
        self,
        send: Any,
        recv: Any = None,
        op: Any = "sum",
        algorithm: str = "auto",
        chain_size: int | None = None,
        chunk_bytes: int = 0,
        check: bool = False,
    ) -> None:
        """Reduce the ranks' `send` into every rank's `recv`; see `reduce`."""
        self._call(send, recv, "allreduce", op, 0, algorithm, chain_size, chunk_bytes, check, None)

    def iallreduce(
        self,
        send: Any,
        recv: Any = None,
        op: Any = "sum",
        algorithm: str = "auto",
        chain_size: int | None = None,
        chunk_bytes: int = 0,
        check: bool = False,
    ) -> Request:
        """Start `allreduce`; return its request."""
        return self._start(send, recv, ("allreduce", op, 0, algorithm, chain_size, chunk_bytes, check, None))

    def bcast(
        self,
        array: Any,
        root: int = 0,
        algorithm: str = "auto",
        chain_size: int | None = None,
        chunk_bytes: int = 0,
        check: bool = False,
    ) -> None:
        """Copy the root's `array`, of any type of fixed size, into the other ranks'."""
        self._call(array, None, "bcast", "", root, algorithm, chain_size, chunk_bytes, check, None)

    def ibcast(
        self,
        array: Any,
        root: int = 0,
        algorithm: str = "auto",
        chain_size: int | None = None,
        chunk_bytes: int = 0,
        check: bool = False,
    ) -> Request:
        """Start `bcast`; return its request."""
        return self._start(array, None, ("bcast", "", root, algorithm, chain_size, chunk_bytes, check, None))

    def reduce_scatter(
        self,
        send: Any,
        recv: Any = None,
        op: Any = "sum",
        algorithm: str = "auto",
        chain_size: int | None = None,
        chunk_bytes: int = 0,
        check: bool = False,
        counts: Sequence[int] | None = None,
    ) -> None:
        """Reduce the ranks' `send`, and give each rank its block of the result in `recv`.

        Without `recv` the block lies in its place in `send`, whose other elements are undefined afterwards.
        """
        self._call(send, recv, "reduce_scatter", op, 0, algorithm, chain_size, chunk_bytes, check, counts)

    def ireduce_scatter(
        self,
        send: Any,
        recv: Any = None,
        op: Any = "sum",
        algorithm: str = "auto",
        chain_size: int | None = None,
        chunk_bytes: int = 0,
        check: bool = False,
        counts: Sequence[int] | None = None,
    ) -> Request:
        """Start `reduce_scatter`; return its request."""
        return self._start(send, recv, ("reduce_scatter", op, 0, algorithm, chain_size, chunk_bytes, check, counts))

    def allgather(
        self,
        send: Any,
        recv: Any = None,
        algorithm: str = "auto",
        chain_size: int | None = None,
        chunk_bytes: int = 0,
        check: bool = False,
        counts: Sequence[int] | None = None,
    ) -> None:
        """Put the ranks' blocks, `send`, side by side into every rank's `recv`.

        With one array that is the whole vector, in which each rank's block lies in its place.
        """
        self._call(send, recv, "allgather", "", 0, algorithm, chain_size, chunk_bytes, check, counts)

    def iallgather(
        self,
        send: Any,
        recv: Any = None,
        algorithm: str = "auto",
        chain_size: int | None = None,
        chunk_bytes: int = 0,
        check: bool = False,
        counts: Sequence[int] | None = None,
    ) -> Request:
        """Start `allgather`; return its request."""
        return self._start(send, recv, ("allgather", "", 0, algorithm, chain_size, chunk_bytes, check, counts))

    def alltoall(
        self,
        send: Any,
        recv: Any = None,
    ) -> None:
        """Give block r of each rank's `send`, of P equal ones, to rank r, whose `recv` has them in the ranks' order."""
        self._call(send, recv, "alltoall", "", 0, "mpi", None, 0, False, None)

    def ialltoall(
        self,
        send: Any,
        recv: Any = None,
    ) -> Request:
        """Start `alltoall`; return its request."""
        return self._start(send, recv, ("alltoall", "", 0, "mpi", None, 0, False, None))

    def gather(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        counts: Sequence[int] | None = None,
    ) -> None:
        """Put the ranks' blocks, `send`, side by side into the root's `recv`.

        Without `counts` all blocks have the same length.
        """
        self._call(send, recv, "gather", "", root, "mpi", None, 0, False, counts)

    def igather(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        counts: Sequence[int] | None = None,
    ) -> Request:
        """Start `gather`; return its request."""
        return self._start(send, recv, ("gather", "", root, "mpi", None, 0, False, counts))

    def scatter(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        counts: Sequence[int] | None = None,
    ) -> None:
        """Give each rank its block of the root's `send` in `recv`; other ranks' `send` may be None.

        Without `counts` all blocks have the same length. Without `recv` the root's block stays where it is.
        """
        self._call(send, recv, "scatter", "", root, "mpi", None, 0, False, counts)

    def iscatter(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        counts: Sequence[int] | None = None,
    ) -> Request:
        """Start `scatter`; return its request."""
        return self._start(send, recv, ("scatter", "", root, "mpi", None, 0, False, counts))

    def barrier(self) -> None:
        """Return once all ranks have come."""
        self._call(None, None, "barrier", "", 0, "mpi", None, 0, False, None)

    def ibarrier(self) -> Request:
        """Start `barrier`; return its request."""
        return self._start(None, None, ("barrier", "", 0, "mpi", None, 0, False, None))
