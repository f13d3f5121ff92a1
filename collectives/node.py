"""Collectives between the ranks of one node over host memory: each rank works on its slice of the elements.

Buffers in a shared window are read and written where they lie; others by the system's copies between processes
(peer.py). Either way memory is read once for each rank and written once for each result, by all cores side by side,
and an element's operands are joined in the order of the ranks, whatever the number of slices and blocks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collectives import peer
from collectives.errors import DisagreementError
from collectives.operations import Operation, join, wide
from collectives.window import Window

if TYPE_CHECKING:
    from mpi4py import MPI

BLOCK = 1 << 16  # elements: a core's cache holds the few blocks that are joined


class Buffer(NamedTuple):
    """Where a rank's elements are: at an offset in a window, by its number; or, -1, at an address in the process."""

    rank: int
    window: int
    where: int


class Node:
    """The ranks of one node. All methods are collective over `comm`; arrays are flat, contiguous and alike."""

    def __init__(self, comm: MPI.Intracomm):
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.pids = comm.allgather(os.getpid())
        self.has_peers = peer.works(comm)
        self.windows: list[Window] = []
        self._announced = np.empty((self.size, 5), np.int64)  # of each rank: bytes, and where its two arrays are
        self._scratch: dict[np.dtype, tuple[np.ndarray, ...]] = {}

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return zeros in a window, which all ranks must ask for alike."""
        self.windows.append(Window(self.comm, int(np.prod(shape)) * dtype.itemsize))
        return self.windows[-1].array(shape, dtype)

    def reaches(self, *arrays: np.ndarray | None) -> bool:
        """Say whether the others can get at these arrays."""
        return self.has_peers or all(array is None or self._find(array)[0] >= 0 for array in arrays)

    def reduce(self, send: np.ndarray, recv: np.ndarray | None, op: Operation, root: int) -> None:
        """Reduce to the root's `recv`, which may be its `send`; the others' is None."""
        sources, targets = self._announce(send, send if recv is None else recv)
        self._combine(send, recv, op, sources, targets[root : root + 1])

    def allreduce(self, send: np.ndarray, recv: np.ndarray, op: Operation) -> None:
        """Reduce to every rank's `recv`, which may be its `send`."""
        self._combine(send, recv, op, *self._announce(send, recv))

    def bcast(self, array: np.ndarray, root: int) -> None:
        """Copy the root's array to the others'."""
        source = self._announce(array, array)[0][root]
        if self.rank != root and (found := self._fetch(source, 0, array)) is not array:
            np.copyto(array, found)
        self._finish()

    def _combine(
        self,
        send: np.ndarray,
        recv: np.ndarray | None,
        op: Operation,
        sources: list[Buffer],
        targets: list[Buffer],
    ) -> None:
        """Join this rank's slice of all sources and put it into all targets."""
        dtype, count = send.dtype, send.size
        *blocks, result, scratch = self._space(dtype)
        at_root = len(targets) == 1 and targets[0].window >= 0
        for start, stop in _blocks(count * self.rank // self.size, count * (self.rank + 1) // self.size, BLOCK):
            n = stop - start
            views = (
                send[start:stop] if one.rank == self.rank else self._fetch(one, start, blocks[i % 2][:n])
                for i, one in enumerate(sources)
            )
            if recv is not None:
                out = recv[start:stop]
            else:
                out = self._view(targets[0], start, result[:n]) if at_root else result[:n]
            join(op, views, self.size, out, scratch[:n])
            for target in targets:
                if target.rank != self.rank and not at_root:
                    self._put(target, start, out)
        self._finish()

    def _fetch(self, source: Buffer, start: int, into: np.ndarray) -> np.ndarray:
        """Return as many of a rank's elements as `into` has: where they lie, if that can be seen, else in it."""
        if source.window >= 0:
            return self._view(source, start, into)
        peer.read(self._place(source, start, into), into)
        return into

    def _put(self, target: Buffer, start: int, values: np.ndarray) -> None:
        """Write values to a rank's elements."""
        if target.window >= 0:
            np.copyto(self._view(target, start, values), values)
        else:
            peer.write(values, self._place(target, start, values))

    def _view(self, buffer: Buffer, start: int, like: np.ndarray) -> np.ndarray:
        offset = buffer.where + start * like.itemsize
        return self.windows[buffer.window].view(buffer.rank, offset, like.size, like.dtype)

    def _place(self, buffer: Buffer, start: int, like: np.ndarray) -> peer.Place:
        return peer.Place(self.pids[buffer.rank], buffer.where + start * like.itemsize)

    def _announce(self, send: np.ndarray, recv: np.ndarray) -> tuple[list[Buffer], list[Buffer]]:
        """Tell all ranks where this one's arrays are, and wait until all have told; return where theirs are."""
        from mpi4py import MPI

        self._sync()
        mine = np.array([send.nbytes, *self._find(send), *self._find(recv)], np.int64)
        self.comm.Allgather([mine, MPI.INT64_T], [self._announced, MPI.INT64_T])
        self._sync()
        told = self._announced.tolist()
        for rank, (nbytes, *_) in enumerate(told):
            if nbytes != told[0][0]:
                raise DisagreementError(f"the ranks differ in bytes: rank 0 has {told[0][0]}, rank {rank} has {nbytes}")
        return [Buffer(r, *row[1:3]) for r, row in enumerate(told)], [Buffer(r, *row[3:]) for r, row in enumerate(told)]

    def _find(self, array: np.ndarray) -> tuple[int, int]:
        """Return the window that an array lies in and its offset there; -1 and its address where there is none."""
        where = peer.address(array)
        for number, window in enumerate(self.windows):
            if (offset := window.offset(where, array.nbytes)) >= 0:
                return number, offset
        return -1, where

    def _space(self, dtype: np.dtype) -> tuple[np.ndarray, ...]:
        """Return blocks for two operands, the result and a partial result; the last is of the wide type."""
        if dtype not in self._scratch:
            one, other, partial = (np.empty(BLOCK, kind) for kind in (dtype, dtype, wide(dtype)))
            result = partial if partial.dtype == dtype else np.empty(BLOCK, dtype)
            self._scratch[dtype] = one, other, result, partial
        return self._scratch[dtype]

    def _finish(self) -> None:
        """Wait until all ranks have done their part."""
        self._sync()
        self.comm.Barrier()
        self._sync()

    def _sync(self) -> None:
        """Order this rank's reads and writes of windows around a message: a fence of memory, whatever the window."""
        if self.windows:
            self.windows[0].sync()

    def free(self) -> None:
        """Free the windows."""
        while self.windows:
            self.windows.pop().free()


def _blocks(start: int, stop: int, length: int) -> Iterator[tuple[int, int]]:
    for at in range(start, stop, max(1, length)):
        yield at, min(at + length, stop)
