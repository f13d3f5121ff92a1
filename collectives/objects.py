"""Objects: collectives of Python objects, pickled, by the MPI library.

    settings = comm.objects.bcast(read_settings() if comm.rank == 0 else None)

An object that can't be pickled is an error on all ranks. Unpickling runs code: take objects only from ranks of yours.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collectives.arguments import attempt, shown, whole
from collectives.errors import ArgumentError

if TYPE_CHECKING:
    from mpi4py import MPI


class Objects:
    """The collectives of Python objects of a Communicator. All are collective, and all ranks agree before each."""

    def __init__(self, comm: Any):
        self._owner = comm

    def bcast(self, value: Any = None, root: int = 0) -> Any:
        """Return the root's object on all ranks."""
        packed = self._agreed("bcast", root, lambda is_root: pickle.dumps(value) if is_root else b"")
        return pickle.loads(self._comm.bcast(packed, root))

    def gather(self, value: Any, root: int = 0) -> list[Any] | None:
        """Return all ranks' objects on the root, in the ranks' order; None on the others."""
        packed = self._agreed("gather", root, lambda is_root: pickle.dumps(value))
        found = self._comm.gather(packed, root)
        return None if found is None else [pickle.loads(one) for one in found]

    def allgather(self, value: Any) -> list[Any]:
        """Return all ranks' objects, in the ranks' order."""
        packed = self._agreed("allgather", 0, lambda is_root: pickle.dumps(value))
        return [pickle.loads(one) for one in self._comm.allgather(packed)]

    def scatter(self, values: Sequence[Any] | None = None, root: int = 0) -> Any:
        """Return rank r's object of the root's list, which has one for each rank."""
        packed = self._agreed("scatter", root, lambda is_root: self._each("scatter", values) if is_root else None)
        return pickle.loads(self._comm.scatter(packed, root))

    def alltoall(self, values: Sequence[Any]) -> list[Any]:
        """Give object r of each rank's list to rank r; return what this rank has got, in the ranks' order."""
        packed = self._agreed("alltoall", 0, lambda is_root: self._each("alltoall", values))
        return [pickle.loads(one) for one in self._comm.alltoall(packed)]

    @property
    def _comm(self) -> MPI.Intracomm:
        comm: MPI.Intracomm = self._owner.comm
        return comm

    def _each(self, what: str, values: Any) -> list[bytes]:
        """Return the pickled objects of a list. Raise ArgumentError for one of another length."""
        if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str | bytes):
            raise ArgumentError(f"{what} takes a list with an object for each rank, got {shown(values)}")
        if len(values) != self._comm.size:
            raise ArgumentError(f"{what} takes a list of {self._comm.size} objects, got {len(values)}")
        return [pickle.dumps(value) for value in values]

    def _agreed(self, what: str, root: Any, pack: Callable[[bool], Any]) -> Any:
        """Return what `pack(is_root)` returns, once all ranks are in the same call and none has an error."""

        def check() -> Any:
            if not self._comm:
                raise ArgumentError(f"objects.{what}: this communicator has been freed")
            if not 0 <= whole("root", root) < self._comm.size:
                raise ArgumentError(f"root {root} is not one of {self._comm.size} ranks")
            return pack(root == self._comm.rank)

        packed, error = attempt(check)
        if error is not None and not self._comm:
            raise error
        self._owner.agree({"the operation": f"objects.{what}", "the root": str(root)[:20]}, error)
        return packed
