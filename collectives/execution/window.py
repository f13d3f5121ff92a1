"""SharedWindow: memory of the ranks of a node that all of them see."""

from __future__ import annotations

import os
from math import inf, prod
from typing import TYPE_CHECKING

import numpy as np

from collectives.execution.peer import address

if TYPE_CHECKING:
    from mpi4py import MPI

ALIGNMENT = 64  # bytes
FOLDER = "/dev/shm"


class SharedWindow:
    """A segment of `nbytes` for each rank of `comm`, whose ranks share memory. Collective; so is `free`."""

    def __init__(self, comm: MPI.Intracomm, nbytes: int):
        from mpi4py import MPI

        self.nbytes = nbytes
        self.win = MPI.Win.Allocate_shared(max(nbytes + ALIGNMENT, 1), 1, comm=comm)
        self.win.Lock_all()
        queried = (self.win.Shared_query(rank)[0] for rank in range(comm.size))
        self.segments = [_aligned(np.asarray(memory.cast("B")), nbytes) for memory in queried]
        self.own = self.segments[comm.rank]
        self.own[...] = 0  # by the rank whose it is, so that its pages are near that rank's core
        self.base = address(self.own) if nbytes else 0
        self.sync()
        comm.Barrier()
        self.sync()

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return this rank's segment as an array."""
        return self.own[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    def offset(self, where: int, nbytes: int) -> int:
        """Return at which byte of this rank's segment an array begins that lies at `where`, -1 if it is not in it."""
        inside = self.nbytes and self.base <= where and where + nbytes <= self.base + self.nbytes
        return where - self.base if inside else -1

    def view(self, rank: int, offset: int, count: int, dtype: np.dtype) -> np.ndarray:
        """Return a part of a rank's segment, flat."""
        return self.segments[rank][offset : offset + count * dtype.itemsize].view(dtype)

    def sync(self) -> None:
        """Make what this rank wrote seen, and see what others wrote before a barrier."""
        self.win.Sync()

    def free(self) -> None:
        """Give the memory back."""
        self.segments, self.own = [], np.empty(0, np.uint8)
        self.win.Unlock_all()
        self.win.Free()


def room() -> float:
    """Return how many bytes are free where MPI libraries keep shared windows; infinity where that isn't known."""
    try:
        found = os.statvfs(FOLDER)
    except OSError:
        return inf
    return found.f_bavail * found.f_frsize


def _aligned(segment: np.ndarray, nbytes: int) -> np.ndarray:
    start = -address(segment) % ALIGNMENT
    return segment[start : start + nbytes]
