"""Plans over device arrays that no schedule makes: the slices of a node's ranks, and the library's own collective.

Where ranks can map each other's device memory (CUDA IPC: GPUs of one node with peer access, or one GPU that they
share), each joins its slice of all contributions by one kernel, which reads the others' memory where it lies and
writes to all that get the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from collectives.errors import ArgumentError
from collectives.execution.device.device import HANDLE, Device
from collectives.execution.device.transports import DirectTransport, StagedTransport
from collectives.execution.node import Requests
from collectives.execution.operations import Operation
from collectives.execution.peer import address
from collectives.execution.plans import LibraryPlan, Plan, TransportPlan

if TYPE_CHECKING:
    from mpi4py import MPI

PLACE = np.dtype([("handle", f"V{HANDLE}"), ("offset", np.int64), ("problem", "S64")])
PROBLEM = np.dtype("S256")  # why a rank can't map another's memory
PROBE = 4096  # bytes
ALIGNED = 64  # elements


class PeerPlan(Plan):
    """Within a node: every rank joins its slice of all contributions and writes it where the result belongs.

    Each run tells the others where this rank's arrays are, for they may have changed; memory that stays the same stays
    mapped. `free` unmaps it, and must be called before the arrays' memory goes back to the device.
    """

    def __init__(self, comm: MPI.Intracomm, device: Device, what: str, op: Operation | None, root: int):
        self.comm, self.device, self.what, self.op, self.root = comm, device, what, op, root
        self._stream, self._given, self._last = device.stream(), device.event(), device.event()
        self._mine, self._places = np.zeros(2, PLACE), np.zeros((comm.size, 2), PLACE)
        self._mapped: dict[bytes, int] = {}
        self._tables: tuple[Any, Any] | None = None

    def steps(self, wait: bool) -> Requests:
        yield self._given  # the others read and write without asking this rank's streams
        yield from self._announce(wait)
        if self.op is None:
            if self.comm.rank != self.root:
                self.device.copy_from(self.send, self._sources[self.root], self._stream)
        else:
            part = slice(*_slice(self.send.size, self.comm.rank, self.comm.size))
            self.device.join_all(self.op, *self._pointers(), part, self.send.dtype, self._stream)
        self._last.record(self._stream)
        yield self._last  # before the others are told
        if wait:
            self.comm.Barrier()
        else:
            yield self.comm.Ibarrier()

    def mark(self) -> None:
        self._given.record(self.device.current())

    def free(self) -> None:
        """Unmap the others' memory."""
        while self._mapped:
            self.device.close(self._mapped.popitem()[1])
        self._places = np.zeros_like(self._places)

    def _announce(self, wait: bool) -> Requests:
        """Tell the others where this rank's arrays are, and map theirs. Raise ArgumentError on all ranks alike."""
        self._mine[0] = _place(self.device, self.send)
        self._mine[1] = self._mine[0] if self.recv is None else _place(self.device, self.recv)
        told = np.empty_like(self._places)
        yield from self._allgather(self._mine, told, wait)
        for rank, place in enumerate(told.ravel()):
            if place["problem"]:
                raise ArgumentError(f"rank {rank // 2}: {place['problem'].decode()}")
        if told.tobytes() != self._places.tobytes():
            yield from self._map(told, wait)

    def _allgather(self, mine: np.ndarray, told: np.ndarray, wait: bool) -> Requests:
        """Fill `told` with all ranks' `mine`. Plans side by side come here in any order, so none may wait for another.

        With `wait` the call itself waits.
        """
        message = mine.view(np.uint8), told.view(np.uint8)
        if wait:
            self.comm.Allgather(*message)
        else:
            yield self.comm.Iallgather(*message)

    def _map(self, places: np.ndarray, wait: bool) -> Requests:
        """Map the others' memory, all ranks theirs or none. Raise ArgumentError on all ranks alike."""
        handles = {bytes(place["handle"]) for rank, row in enumerate(places) for place in row if rank != self.comm.rank}
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
            mine if rank == self.comm.rank else tuple(self._mapped[bytes(p["handle"])] + int(p["offset"]) for p in row)
            for rank, row in enumerate(places)
        ]
        self._sources, self._targets = ([pair[k] for pair in found] for k in (0, 1))

    def _pointers(self) -> tuple[Any, Any]:
        """Return where the result goes, and the contributions."""
        if self._tables is None:
            targets = self._targets if self.what == "allreduce" else [self._targets[self.root]]
            self._tables = (self.device.table(targets, self._stream), self.device.table(self._sources, self._stream))
        return self._tables


class DeviceLibraryPlan(TransportPlan):
    """The MPI library's own collective: on the arrays where they lie, or on copies in pinned memory."""

    transport: DirectTransport | StagedTransport

    def __init__(self, library: LibraryPlan, transport: DirectTransport | StagedTransport, direct: bool):
        self.library, self.transport, self.direct, self.op = library, transport, direct, library.op
        if direct and self.op:
            library.op = self.op._replace(divided=False)
        self._pinned: list[np.ndarray] = []
        self._given = transport.device.event()  # to MPI

    def steps(self, wait: bool) -> Requests:
        device, up = self.transport.device, self.transport.up
        self.transport.begin()
        send, recv = self.send, self.recv
        if not self.direct:
            send, recv = self._copies()
            device.copy(send, self.send, up)
        self._given.record(up)
        yield self._given
        self.library.bind(send, recv)
        yield from self.library.steps(wait)
        if not self.direct and (self.op is None or self.recv is not None):
            device.copy(self.send if self.recv is None else self.recv, send if recv is None else recv, up)
        elif self.direct and self.op and self.op.divided and self.recv is not None:
            device.divide(self.recv, self.library.comm.size, up)
        self.transport.end()

    def _copies(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return pinned room for what is sent and for what is received."""
        if not self._pinned:
            self._pinned = [self.transport.device.pinned(self.send.nbytes).view(self.send.dtype) for _ in range(2)]
        return self._pinned[0], None if self.recv is None else self._pinned[1]


def why_no_peers(comm: MPI.Intracomm, device: Device) -> str:
    """Return why the ranks of a node can't map each other's device memory, "" if they can. Collective.

    Each maps a small array of every other, as the plans will: that says more than asking whether they may.
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
    problems = comm.allgather(problem)  # also: nobody maps the probe any more
    del probe
    return next(filter(None, problems), "")


def _place(device: Device, array: Any) -> np.ndarray:
    """Return where an array is, or why that can't be told."""
    place = np.zeros((), PLACE)
    try:
        handle, place["offset"] = device.export(array)
        place["handle"] = np.void(handle)
    except ArgumentError as error:
        place["problem"] = str(error)[:64].encode("ascii", "replace")
    return place


def _slice(count: int, rank: int, size: int) -> tuple[int, int]:
    """Return where a rank's elements begin and end: at multiples of ALIGNED, so that kernels take 16 bytes at once."""
    parts = -(-count // ALIGNED)
    start, stop = (min(count, parts * k // size * ALIGNED) for k in (rank, rank + 1))
    return start, stop
