"""Plans over device arrays without a schedule: the slices of a node's ranks, and the library's own collective.

Ranks can map each other's device memory by CUDA IPC: GPUs of one node with peer access, or one GPU that they share.
There each rank joins its slice of all contributions by one kernel, which reads the other ranks' memory where it lies
and writes to every result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collectives.errors import ArgumentError
from collectives.execution.device.device import HANDLE, Device
from collectives.execution.device.transports import DirectTransport, StagedTransport
from collectives.execution.library import LibraryPlan
from collectives.execution.node import Requests
from collectives.execution.operations import Operation
from collectives.execution.peer import address
from collectives.execution.plans import Plan, TransportPlan
from collectives.verbs import VERBS, Slice

if TYPE_CHECKING:
    from mpi4py import MPI

Parts = Sequence[Sequence[Slice]]  # of a vector, by rank
PLACE = np.dtype([("handle", f"V{HANDLE}"), ("offset", np.int64), ("problem", "S64")])
PROBLEM = np.dtype("S256")  # why a rank can't map another's memory
PROBE = 4096  # bytes
NOTHING = bytes(HANDLE)  # the handle of an array without elements
ALIGNED = 64  # elements


class PeerPlan(Plan):
    """Algorithm `slices`: each rank of the node joins its slice of all contributions and writes it to every result.

    With a verb of blocks, each rank works on its `parts` of the vector, those of rank r being `parts[r]`. An array has
    the whole vector or, on a rank that has nothing else of it, its parts one after the other.

    Each run exchanges the places of the arrays, since they may change; memory that stays the same stays mapped. Call
    `free`, which unmaps it, before the arrays' memory goes back to the device.
    """

    def __init__(
        self, comm: MPI.Intracomm, device: Device, what: str, op: Operation | None, root: int, parts: Parts = ()
    ):
        self.comm, self.device, self.what, self.op, self.root = comm, device, what, op, root
        self.parts = parts
        self._stream, self._given, self._last = device.stream(), device.event(), device.event()
        self._mine, self._places = np.zeros(2, PLACE), np.zeros((comm.size, 2), PLACE)
        self._mapped: dict[bytes, int] = {}
        self._tables: list[tuple[Any, Any, slice]] | None = None

    def steps(self, wait: bool) -> Requests:
        """Exchange the places of the arrays, do this rank's share, wait for the others."""
        yield self._given  # the other ranks do not wait for this rank's streams
        yield from self._announce(wait)
        if self.op is not None:
            for targets, sources, part in self._joins():
                self.device.join_all(self.op, targets, sources, part, self.send.dtype, self._stream)
        elif not self.parts:
            if self.comm.rank != self.root:
                self.device.copy_from(self.send, self._sources[self.root], self._stream)
        elif VERBS[self.what].spreads or self.what == "gather":
            self._give_parts()
        else:
            for place, own in self._own(self.recv):
                self.device.copy_from(own, self._sources[self.root] + place[0] * own.dtype.itemsize, self._stream)
        self._last.record(self._stream)
        yield self._last  # before the barrier
        if wait:
            self.comm.Barrier()
        else:
            yield self.comm.Ibarrier()

    def _own(self, array: Any) -> list[tuple[Slice, Any]]:
        """Return this rank's parts that are not empty, with their elements in an array."""
        return own_parts(self.parts, self.comm.rank, array)

    def _give_parts(self) -> None:
        """Write this rank's parts to all results, or to the root's."""
        targets = self._targets if VERBS[self.what].spreads else [self._targets[self.root]]
        for (start, _), own in self._own(self.send):
            for target in targets:
                if (place := target + start * own.dtype.itemsize) != address(own):
                    self.device.copy_to(place, own, self._stream)

    def mark(self) -> None:
        """Record the caller's stream."""
        self._given.record(self.device.current())

    def free(self) -> None:
        """Unmap the other ranks' memory."""
        while self._mapped:
            self.device.close(self._mapped.popitem()[1])
        self._places = np.zeros_like(self._places)

    def _announce(self, wait: bool) -> Requests:
        """Send the places of this rank's arrays, and map the others'. Raise ArgumentError on all ranks."""
        self._mine[0] = _place(self.device, self.send)
        self._mine[1] = self._mine[0] if self.recv is None else _place(self.device, self.recv)
        places = np.empty_like(self._places)
        yield from self._allgather(self._mine, places, wait)
        for rank, place in enumerate(places.ravel()):
            if place["problem"]:
                raise ArgumentError(f"rank {rank // 2}: {place['problem'].decode()}")
        if places.tobytes() != self._places.tobytes():
            yield from self._map(places, wait)

    def _allgather(self, mine: np.ndarray, every: np.ndarray, wait: bool) -> Requests:
        """Fill `every` with all ranks' `mine`. With `wait` the call itself waits.

        Without it no rank waits: plans that run side by side come here in any order.
        """
        message = mine.view(np.uint8), every.view(np.uint8)
        if wait:
            self.comm.Allgather(*message)
        else:
            yield self.comm.Iallgather(*message)

    def _map(self, places: np.ndarray, wait: bool) -> Requests:
        """Map the other ranks' memory, on all ranks or on none. Raise ArgumentError on all ranks."""
        others = (place for rank, row in enumerate(places) for place in row if rank != self.comm.rank)
        handles = {bytes(place["handle"]) for place in others} - {NOTHING}
        for handle in self._mapped.keys() - handles:
            self.device.close(self._mapped.pop(handle))
        problem, problems = np.zeros(1, PROBLEM), np.zeros(self.comm.size, PROBLEM)
        for handle in sorted(handles - self._mapped.keys()):
            try:
                self._mapped[handle] = self.device.open(handle)
            except ArgumentError as error:
                problem[0] = problem[0] or f"rank {self.comm.rank}: {error}".encode("ascii", "replace")
        yield from self._allgather(problem, problems, wait)
        if wrong := next(filter(None, problems), b""):
            raise ArgumentError(wrong.decode())
        self._places, self._tables = places, None
        mine = address(self.send), address(self.send if self.recv is None else self.recv)
        found = [
            mine
            if rank == self.comm.rank
            else tuple(self._mapped.get(bytes(p["handle"]), 0) + int(p["offset"]) for p in row)
            for rank, row in enumerate(places)
        ]
        self._sources, self._targets = ([pair[k] for pair in found] for k in (0, 1))

    def _joins(self) -> list[tuple[Any, Any, slice]]:
        """Return the pointers of results and of contributions, and the elements that this rank joins there."""
        if self._tables is None:
            verb, size, table = VERBS[self.what], self.send.dtype.itemsize, self.device.table
            if self.parts:
                found = [([address(own)], start, own.size) for (start, _), own in self._own(self.recv)]
                self._tables = [
                    (
                        table(to, self._stream),
                        table([p + start * size for p in self._sources], self._stream),
                        slice(0, n),
                    )
                    for to, start, n in found
                ]
            else:
                targets = self._targets if verb.spreads else [self._targets[self.root]]
                part = slice(*_slice(self.send.size, self.comm.rank, self.comm.size))
                self._tables = [(table(targets, self._stream), table(self._sources, self._stream), part)]
        return self._tables


class DeviceLibraryPlan(TransportPlan):
    """The MPI library's own collective, on device arrays or on copies in pinned memory."""

    transport: DirectTransport | StagedTransport

    def __init__(self, library: LibraryPlan, transport: DirectTransport | StagedTransport, direct: bool):
        """Wrap the library's plan. `direct`: MPI takes device pointers."""
        self.library, self.transport, self.direct, self.op = library, transport, direct, library.op
        if direct and self.op:
            library.op = self.op._replace(divided=False)
        self._pinned: list[np.ndarray] = []
        self._given = transport.device.event()  # after it MPI may read

    def steps(self, wait: bool) -> Requests:
        """Copy where needed; run the library's collective."""
        device, up = self.transport.device, self.transport.up
        self.transport.begin()
        send, recv = self.send, self.recv
        if not self.direct:
            send, recv = self._copies()
            if self._has("contribution"):
                device.copy(send, self.send, up)
        self._given.record(up)
        yield self._given
        self.library.bind(send, recv)
        yield from self.library.steps(wait)
        if not self.direct and self._has("result"):
            device.copy(self.send if self.recv is None else self.recv, send if recv is None else recv, up)
        elif self.direct and self.op and self.op.divided and self.recv is not None:
            device.divide(self.recv, self.library.comm.size, up)
        self.transport.end()

    def _has(self, part: str) -> bool:
        """Return whether this rank has any element of a "contribution" or a "result"."""
        library = self.library
        find = getattr(VERBS[library.what], part)
        start, stop = find(library.comm.rank, library.root, library.bounds or (0, self.send.size))
        return bool(start < stop)

    def _copies(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return pinned memory for what is sent and for what is received."""
        if not self._pinned:
            given = self.send, self.send if self.recv is None else self.recv
            self._pinned = [self.transport.device.pinned(one.nbytes).view(one.dtype) for one in given]
        return self._pinned[0], None if self.recv is None else self._pinned[1]


def why_no_peers(comm: MPI.Intracomm, device: Device) -> str:
    """Return why the ranks of a node can't map each other's device memory, "" if they can. Collective.

    Each maps a small array of every other, as the plans do; asking the driver for permission says less.
    """
    probe = device.empty((PROBE,), np.dtype(np.uint8))
    place = _place(device, probe)
    handles = comm.allgather((place["handle"].tobytes(), place["problem"].tobytes().rstrip(b"\0").decode()))
    problem = next((problem for _, problem in handles if problem), "")
    for rank, (handle, _) in enumerate(handles):
        if not problem and rank != comm.rank:
            try:
                device.close(device.open(handle))
            except ArgumentError as error:
                problem = f"rank {comm.rank} and rank {rank}: {error}"
    problems = comm.allgather(problem)  # also a barrier: no rank maps the probe any more
    del probe
    return next(filter(None, problems), "")


def _place(device: Device, array: Any) -> np.ndarray:
    """Return the handle and offset of an array, or why it has none."""
    place = np.zeros((), PLACE)
    if not array.size:
        return place
    try:
        handle, place["offset"] = device.export(array)
        place["handle"] = np.void(handle)
    except ArgumentError as error:
        place["problem"] = str(error)[:64].encode("ascii", "replace")
    return place


def own_parts(parts: Parts, rank: int, array: Any) -> list[tuple[Slice, Any]]:
    """Return a rank's parts that are not empty, with their elements in an array of all elements or of these parts."""
    found, is_whole, at = [], array.size == max(stop for each in parts for _, stop in each), 0
    for start, stop in parts[rank]:
        place = start if is_whole else at
        at += stop - start
        if start < stop:
            found.append(((start, stop), array[place : place + stop - start]))
    return found


def node_slices(count: int, size: int) -> Parts:
    """Return the part of a vector that each of the ranks of a node works on."""
    return [[_slice(count, rank, size)] for rank in range(size)]


def _slice(count: int, rank: int, size: int) -> tuple[int, int]:
    """Return a rank's elements: bounds are multiples of ALIGNED, so that kernels move 16 bytes at a time."""
    parts = -(-count // ALIGNED)
    start, stop = (min(count, parts * k // size * ALIGNED) for k in (rank, rank + 1))
    return start, stop
