"""Collectives among the ranks of one node over host memory: each rank works on its slice of the elements.

Buffers in a shared window are read and written where they lie, others by the system's copies between processes
(peer.py). Either way memory is read once for each rank and written once for each result, by all cores in parallel.
An element's operands are joined in rank order, whatever the number of slices and blocks.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collectives.errors import ArgumentError, DisagreementError
from collectives.execution import peer
from collectives.execution.operations import Operation, join, wide
from collectives.execution.transport import Awaited
from collectives.execution.window import PROCESS, SharedWindow

if TYPE_CHECKING:
    from mpi4py import MPI

Requests = Iterator[Awaited]
REMEDY = "allocate it with `empty`, or use one communicator (see `dup`) for arrays from `empty` and one for others"
BLOCK = 1 << 18  # elements: few enough for a cache, many enough that Python's share is small


class RemoteBuffer(NamedTuple):
    """Where a rank's elements are: an offset in the window of that number, or, for -1, an address in its process."""

    rank: int
    window: int
    where: int


class NodeComm:
    """The communicator of one node's ranks, with their shared windows.

    Methods that don't name a rank or a buffer are collective over `comm`. Arrays are flat, contiguous, and of the same
    size and type on all ranks. Generators yield requests: wait for each, or return when it is complete.
    """

    def __init__(self, comm: MPI.Intracomm, of: NodeComm | None = None):
        """Find out what `comm` can do, or take that and the windows from `of`, a NodeComm of the same ranks."""
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.pids: list[int] = of.pids if of else comm.allgather(os.getpid())
        self.has_peers: bool = of.has_peers if of else peer.works(comm)
        self.windows: list[SharedWindow] = of.windows if of else []
        self.given_up: list[SharedWindow] = []  # which MPI can't free, since a rank is lost
        self._ends = False  # whether windows are freed when the process ends
        self._mine = np.empty(5, np.int64)  # bytes, and the places of two arrays
        self._announced = np.zeros((self.size, 5), np.int64)
        self._scratch: dict[np.dtype, tuple[np.ndarray, ...]] = {}

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return zeros in a new window. All ranks pass the same shape and type."""
        if not self._ends:
            self._ends = True
            atexit.register(self.free)  # some libraries fail where a window is left
        self.windows.append(SharedWindow(self.comm, prod(shape) * dtype.itemsize))
        return self.windows[-1].array(shape, dtype)

    def give_back(self, array: np.ndarray) -> None:
        """Free the window that begins with this array. Raise ArgumentError for another array."""
        if (number := self.window_of(array)) >= 0:
            self.windows.pop(number).free()

    def window_of(self, array: np.ndarray) -> int:
        """Return the window that begins with this array, -1 for one of 0 bytes. Raise ArgumentError for another array.

        Not collective.
        """
        if not isinstance(array, np.ndarray):
            raise ArgumentError(f"only arrays that `empty` returned can be given back, got {type(array).__name__}")
        number, offset = self._find(array) if array.nbytes else (-1, 0)
        if array.nbytes and (number < 0 or offset):
            raise ArgumentError("only arrays that `empty` returned, and that are not given back yet, can be given back")
        return number

    def holds(self, array: np.ndarray) -> bool:
        """Return whether an array lies in a window."""
        return self._find(array)[0] >= 0

    def announce(self, send: np.ndarray, recv: np.ndarray, wait: bool, nbytes: int | None = None) -> Requests:
        """Exchange the places of all ranks' arrays; afterwards `sources` and `targets` hold them.

        With `wait` the call itself waits. `nbytes`: the bytes of the vector, by default those of `send`. Raise, on all
        ranks, DisagreementError where they differ in bytes, and ArgumentError where an array is out of reach.
        """
        from mpi4py import MPI

        self._sync()
        self._mine[:] = send.nbytes if nbytes is None else nbytes, *self._find(send), *self._find(recv)
        message = [self._mine, MPI.INT64_T], [self._announced, MPI.INT64_T]
        if wait:
            self.comm.Allgather(*message)
        else:
            yield self.comm.Iallgather(*message)
        self._sync()
        places = self._announced.tolist()
        for rank, (nbytes, *row) in enumerate(places):
            if nbytes != places[0][0]:
                raise DisagreementError(
                    f"the ranks differ in bytes: rank 0 has {places[0][0]}, rank {rank} has {nbytes}"
                )
            if not self.has_peers and self.size > 1 and -1 in (row[0], row[2]):
                raise ArgumentError(f"rank {rank} of the node has its array where the others can't read it: {REMEDY}")
        self.sources = [RemoteBuffer(rank, *row[1:3]) for rank, row in enumerate(places)]
        self.targets = [RemoteBuffer(rank, *row[3:]) for rank, row in enumerate(places)]

    def finish(self, wait: bool) -> Requests:
        """Wait until all ranks have done their part."""
        self._sync()
        if wait:
            self.comm.Barrier()
        else:
            yield self.comm.Ibarrier()
        self._sync()

    def slice(self, count: int) -> tuple[int, int]:
        """Return the first element of this rank's slice of `count` elements, and the first after it."""
        return count * self.rank // self.size, count * (self.rank + 1) // self.size

    def join(self, send: np.ndarray, op: Operation, start: int, out: np.ndarray) -> None:
        """Join elements of all ranks' sources, from `start` on, into `out`."""
        one, other, scratch, _ = self._space(out.dtype)
        for at, end in blocks(0, out.size, self._block(op, out)):
            n, first = end - at, start + at
            views = (
                send[first : first + n] if rank == self.rank
                else self.view(source, first, n, out.dtype) if source.window >= 0
                else self.fetch(source, first, (one, other)[rank % 2][:n])
                for rank, source in enumerate(self.sources)
            )  # fmt: skip
            join(op, views, self.size, out[at:end], scratch[:n])

    def _block(self, op: Operation, out: np.ndarray) -> int:
        """Return how many elements to join at a time: all, if no intermediate result must stay in the cache."""
        seen = all(source.window >= 0 for source in self.sources)
        return max(out.size, 1) if self.size == 2 and seen and op.exact(out.dtype) else BLOCK

    def result(self, dtype: np.dtype, count: int) -> np.ndarray:
        """Return room for the result of a block that belongs to other ranks only; the next block reuses it."""
        return self._space(dtype)[-1][:count]

    def fetch(self, source: RemoteBuffer, start: int, into: np.ndarray) -> np.ndarray:
        """Return `into.size` elements of a rank: a view where they can be seen, else `into`, filled."""
        if source.window >= 0:
            return self.view(source, start, into.size, into.dtype)
        peer.read(self._place(source, start, into), into)
        return into

    def put(self, target: RemoteBuffer, start: int, values: np.ndarray) -> None:
        """Write values to a rank's elements."""
        if target.window >= 0:
            np.copyto(self.view(target, start, values.size, values.dtype), values)
        else:
            peer.write(values, self._place(target, start, values))

    def view(self, buffer: RemoteBuffer, start: int, count: int, dtype: np.dtype) -> np.ndarray:
        """Return a view of a rank's elements in a window."""
        return self.windows[buffer.window].view(buffer.rank, buffer.where + start * dtype.itemsize, count, dtype)

    def _place(self, buffer: RemoteBuffer, start: int, like: np.ndarray) -> peer.RemoteAddress:
        """Return the address of a rank's elements in its process."""
        return peer.RemoteAddress(self.pids[buffer.rank], buffer.where + start * like.itemsize)

    def _find(self, array: np.ndarray) -> tuple[int, int]:
        """Return the window that an array lies in and its offset there, or -1 and its address."""
        where = peer.address(array)
        for number, window in enumerate(self.windows):
            if (offset := window.offset(where, array.nbytes)) >= 0:
                return number, offset
        return -1, where

    def _space(self, dtype: np.dtype) -> tuple[np.ndarray, ...]:
        """Return blocks for two operands, for a partial result of the wide type, and for a result."""
        if dtype not in self._scratch:
            one, other, partial = (np.empty(BLOCK, kind) for kind in (dtype, dtype, wide(dtype)))
            result = partial if partial.dtype == dtype else np.empty(BLOCK, dtype)
            self._scratch[dtype] = one, other, partial, result
        return self._scratch[dtype]

    def _sync(self) -> None:
        """Order this rank's accesses to windows around a message. One fence serves all windows."""
        if self.windows:
            self.windows[0].sync()

    def free(self) -> None:
        """Free the windows. Collective."""
        from mpi4py import MPI

        if MPI.Is_finalized():
            return
        while self.windows:
            self.windows.pop().free()

    def abandon(self, windows: bool) -> None:
        """Never free the windows, since a rank is lost; with `windows` give their memory back. Not collective."""
        atexit.unregister(self.free)
        self.given_up, self.windows = [*self.given_up, *self.windows], []
        for window in self.given_up if windows else []:
            window.abandon()

    @property
    def memory(self) -> list[np.ndarray]:
        """Return this rank's part of each window, bytes, also of those that were given up."""
        return [window.own for window in (*self.given_up, *self.windows)]

    def common(
        self, earlier: Sequence[NodeComm], nbytes: int, count: int
    ) -> tuple[list[SharedWindow], tuple[str, ...]]:
        """Return so many windows of `nbytes` that one of `earlier` has given up, the same on all ranks, or none.

        The second value holds the PROCESS of each rank.
        """
        fitting = ([window for window in one.given_up if window.nbytes == nbytes] for one in reversed(earlier))
        found = next((windows[:count] for windows in fitting if len(windows) >= count), [])
        keys, processes = zip(*self.comm.allgather(([one.key for one in found], PROCESS)), strict=True)
        same = all(one == keys[0] for one in keys) and all(one.belongs_to(processes) for one in found)
        return found if same else [], processes

    def take_over(self, windows: Sequence[SharedWindow], processes: Sequence[str], earlier: Sequence[NodeComm]) -> None:
        """Go on with windows that all ranks have in `common`, which also returns the `processes`. Not collective."""
        for window in windows:
            window.narrow(processes)
        self.windows += windows
        for one in earlier:
            one.given_up = [window for window in one.given_up if window not in windows]


def blocks(start: int, stop: int, length: int = BLOCK) -> Iterator[tuple[int, int]]:
    """Yield the start and stop of each block of [start, stop)."""
    for at in range(start, stop, length):
        yield at, min(at + length, stop)
