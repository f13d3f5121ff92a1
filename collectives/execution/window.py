"""Shared windows: memory that all ranks of a node see."""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
from collections.abc import Iterable
from math import inf, prod
from typing import TYPE_CHECKING

import numpy as np

from collectives.execution.peer import address

if TYPE_CHECKING:
    from mpi4py import MPI

ALIGNMENT = 64  # bytes
FOLDER = "/dev/shm"
PROCESS = secrets.token_hex(8)  # this one; a process id may be that of another process in another container


class SharedWindow:
    """An MPI shared window: one segment of `nbytes` bytes, zeroed and aligned, for each rank of `comm`.

    The ranks of `comm` share memory. Making it is collective, and so is `free`. `key` is the same on these ranks alone.
    """

    def __init__(self, comm: MPI.Intracomm, nbytes: int):
        from mpi4py import MPI

        self.nbytes = nbytes
        self.win = MPI.Win.Allocate_shared(max(nbytes + ALIGNMENT, 1), 1, comm=comm)
        self.win.Lock_all()
        queried = (self.win.Shared_query(rank)[0] for rank in range(comm.size))
        self.segments = [_aligned(np.asarray(memory.cast("B")), nbytes) for memory in queried]
        self.own = self.segments[comm.rank]
        self.own[...] = 0  # written by its owner, so that its pages are near the owner's core
        self.base = address(self.own) if nbytes else 0
        self.sync()
        given = comm.allgather((PROCESS, secrets.token_hex(8)))
        self.sync()
        self.key = given[0][1]
        self._parts = {process: part for (process, _), part in zip(given, self.segments, strict=True)}
        self._is_narrowed = False

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return this rank's segment as an array."""
        return self.own[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    def offset(self, where: int, nbytes: int) -> int:
        """Return the offset in this rank's segment, in bytes, of `nbytes` bytes at address `where`; -1 outside it."""
        inside = self.nbytes and self.base <= where and where + nbytes <= self.base + self.nbytes
        return where - self.base if inside else -1

    def view(self, rank: int, offset: int, count: int, dtype: np.dtype) -> np.ndarray:
        """Return `count` elements of a rank's segment from byte `offset`, flat."""
        return self.segments[rank][offset : offset + count * dtype.itemsize].view(dtype)

    def belongs_to(self, processes: Iterable[str]) -> bool:
        """Return whether these processes, each the PROCESS of one, all have a segment."""
        return self._parts.keys() >= {*processes}

    def narrow(self, processes: Iterable[str]) -> None:
        """Go on with the segments of these processes, in their order, since others are lost: MPI can't free it now."""
        self.segments, self._is_narrowed = [self._parts[one] for one in processes], True

    def sync(self) -> None:
        """Make this rank's writes visible, and see the others' writes from before a barrier."""
        self.win.Sync()

    def free(self) -> None:
        """Free the memory. Collective."""
        if self._is_narrowed:
            return self.abandon()
        self.segments, self.own = [], np.empty(0, np.uint8)
        self.win.Unlock_all()
        self.win.Free()

    def abandon(self) -> None:
        """Give the memory of this rank's segment back to the system: it reads as zeros. Not collective."""
        start = -self.base % mmap.PAGESIZE
        if (nbytes := (self.nbytes - start) // mmap.PAGESIZE * mmap.PAGESIZE) > 0:
            where, length = ctypes.c_void_p(self.base + start), ctypes.c_size_t(nbytes)
            ctypes.CDLL(None).madvise(where, length, mmap.MADV_REMOVE)


def room() -> float:
    """Return the bytes free where MPI libraries keep shared windows; infinity where that is unknown."""
    try:
        found = os.statvfs(FOLDER)
    except OSError:
        return inf
    return found.f_bavail * found.f_frsize


def _aligned(segment: np.ndarray, nbytes: int) -> np.ndarray:
    """Return `nbytes` bytes of a segment from its first aligned address."""
    start = -address(segment) % ALIGNMENT
    return segment[start : start + nbytes]
