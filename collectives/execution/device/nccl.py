"""NCCL: NVIDIA's collectives between GPUs of one rank each, as plans.

All collectives of a communicator run on one stream, and events order that stream and the callers'. NCCL needs the same
order of collectives on all ranks, or it waits forever; plans that are under way side by side reach their turn at each
rank's own pace. So rank 0 launches as it comes and sends the order to the other ranks, which launch in that order.
Sums of half precision, and NaN in max and min, are NCCL's own.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from collectives.errors import ArgumentError, CollectiveError
from collectives.execution.device.device import Device
from collectives.execution.device.plans import Parts, own_parts
from collectives.execution.node import Requests
from collectives.execution.operations import Operation
from collectives.execution.peer import address
from collectives.execution.plans import Plan
from collectives.verbs import VERBS

if TYPE_CHECKING:
    from mpi4py import MPI

SHARING = "NCCL_MULTI_RANK_GPU_ENABLE"  # lets ranks share a GPU: in NCCL 2.32, not in 2.29
OPERATIONS = {"sum": "NCCL_SUM", "mean": "NCCL_SUM", "max": "NCCL_MAX", "min": "NCCL_MIN"}


def load() -> Any:
    """Return CuPy's NCCL. Raise ArgumentError where it can't be loaded."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CuPy warns in several lines
            import cupy
            from cupy.cuda import nccl
    except (ImportError, AttributeError) as error:
        raise ArgumentError(f"NCCL can't be loaded: {' '.join(str(error).split())}") from None
    if not nccl.available:
        cuda = cupy.cuda.runtime.runtimeGetVersion() // 1000
        raise ArgumentError(f"NCCL can't be loaded: pip install nvidia-nccl-cu{cuda}")
    return nccl


def why_no_nccl(comm: MPI.Intracomm, device: Device, may_share: bool = False) -> str:
    """Return why NCCL can't connect these ranks, "" if it can. Collective.

    With `may_share` on all ranks, ranks may share a GPU.
    """
    problem = ""
    try:
        device.nccl()
    except ArgumentError as error:
        problem = str(error)
    problems, identities, may = zip(*comm.allgather((problem, device.identity, may_share)), strict=True)
    if any(problems):
        return str(next(filter(None, problems)))
    first: dict[str, int] = {}
    for rank, identity in enumerate(identities):
        if first.setdefault(identity, rank) != rank and not all(may):
            return f"NCCL takes one rank a GPU, and ranks {first[identity]} and {rank} share one"
    return ""


class LaunchOrder:
    """The order in which plans launch: rank 0's, on all ranks of `comm`, which carries nothing else."""

    def __init__(self, comm: MPI.Intracomm):
        self.comm = comm
        self._waiting: dict[int, Callable[[], None]] = {}  # by the plans' numbers: what launches them
        self._next = np.empty(1, np.int64)
        self._request: MPI.Request | None = None
        self._known = False  # whether the next number has arrived
        self._sends: deque[tuple[MPI.Request, np.ndarray]] = deque()

    def ask(self, number: int, work: Callable[[], None]) -> None:
        """Launch a plan in its turn: on rank 0 now, on other ranks in `go_on`."""
        if self.comm.rank:
            self._waiting[number] = work
            return
        word = np.array([number], np.int64)
        self._sends.extend((self.comm.Isend(word, rank), word) for rank in range(1, self.comm.size))
        while self._sends and self._sends[0][0].Test():
            self._sends.popleft()
        work()

    def is_waiting(self, number: int) -> bool:
        """Return whether a plan has not been launched yet."""
        return number in self._waiting

    def go_on(self) -> None:
        """Launch the plans whose turn has come."""
        while self._waiting:
            if self._request is None:
                self._request = self.comm.Irecv(self._next, 0)
            self._known = self._known or bool(self._request.Test())
            if not self._known or int(self._next[0]) not in self._waiting:
                return
            self._request, self._known = None, False
            self._waiting.pop(int(self._next[0]))()

    def free(self) -> None:
        """Free the communicator; no plan may wait. Collective."""
        while self._sends:
            self._sends.popleft()[0].Wait()
        if self._request is not None:
            self._request.Cancel()
            self._request.Wait()
        self.comm.Free()


class LaunchRequest:
    """The launch of a plan, as a request."""

    def __init__(self, turns: LaunchOrder, number: int, work: Callable[[], None]):
        self.turns, self.number = turns, number
        turns.ask(number, work)

    def Test(self) -> bool:
        """Return whether the plan has been launched."""
        self.turns.go_on()
        return not self.turns.is_waiting(self.number)

    def Wait(self) -> None:
        """Wait until the plan has been launched."""
        while not self.Test():
            pass


class NcclCommunicator:
    """NCCL's communicator over the ranks of `comm`, and its stream. Collective; so is `free`.

    Raise CollectiveError on all ranks where NCCL can't connect them.
    """

    def __init__(self, comm: MPI.Intracomm, device: Device):
        self.device, self.stream, self.library = device, device.stream(), device.nccl()
        self.turns, self.numbers = LaunchOrder(comm.Dup()), count()
        identity = comm.bcast(self.library.get_unique_id() if comm.rank == 0 else None)
        problem = ""
        try:
            self.group = self.library.NcclCommunicator(comm.size, identity, comm.rank)
        except RuntimeError as error:  # NcclError is one
            problem = f"NCCL can't connect the ranks: {error}; NCCL_DEBUG=INFO gives details"
        if wrong := next(filter(None, comm.allgather(problem)), ""):  # also a barrier
            raise CollectiveError(wrong)

    def type(self, dtype: np.dtype) -> int:
        """Return NCCL's number of a type. Raise CollectiveError where NCCL has none."""
        number = getattr(self.library, f"NCCL_{dtype.name.upper()}", None)
        if number is None:
            raise CollectiveError(f"NCCL sums no {dtype.name}; choose another algorithm")
        return int(number)

    def free(self) -> None:
        """Free the communicator after all work on its stream. Collective."""
        done = self.device.event()
        done.record(self.stream)
        done.Wait()
        self.turns.comm.Barrier()
        self.group.destroy()
        self.turns.free()


class NcclPlan(Plan):
    """A collective of NCCL. It ends when it is on the stream, where it waits for the other ranks."""

    def __init__(
        self,
        nccl: NcclCommunicator,
        what: str,
        op: Operation | None,
        root: int,
        rank: int,
        size: int,
        parts: Parts = (),
    ):
        self.nccl, self.what, self.op, self.root, self.rank, self.size = nccl, what, op, root, rank, size
        self.parts = parts  # as PeerPlan's
        self.number = next(nccl.numbers)
        self._given, self._last = nccl.device.event(), nccl.device.event()

    def steps(self, wait: bool) -> Requests:
        """Launch in this plan's turn."""
        yield LaunchRequest(self.nccl.turns, self.number, self._launch)

    def mark(self) -> None:
        """Record the caller's stream."""
        self._given.record(self.nccl.device.current())

    def follow(self) -> None:
        """Make the caller's stream wait for the result."""
        self.nccl.device.current().wait_event(self._last)

    def free(self) -> None:
        """Wait for the last run."""
        self._last.Wait()

    def _launch(self) -> None:
        """Put the collective on the stream. Raise CollectiveError where NCCL refuses it."""
        stream = self.nccl.stream
        stream.wait_event(self._given)
        try:
            self._call(address(self.send), address(self.send if self.recv is None else self.recv), stream.ptr)
        except RuntimeError as error:
            raise CollectiveError(f"NCCL's {self.what} of {self.send.nbytes} bytes failed: {error}") from None
        if self.op and self.op.divided and self.recv is not None:
            for mean in [own for _, own in own_parts(self.parts, self.rank, self.recv)] if self.parts else [self.recv]:
                self.nccl.device.divide(mean, self.size, stream)
        self._last.record(stream)

    def _call(self, send: int, recv: int, stream: int) -> None:
        """Call NCCL."""
        group = self.nccl.group
        if self.parts:
            self.nccl.library.groupStart()
            try:
                self._call_parts(send, recv, stream)
            finally:
                self.nccl.library.groupEnd()
            return
        if self.op is None:  # of any type, as bytes
            group.broadcast(send, send, self.send.nbytes, self.nccl.type(np.dtype(np.uint8)), self.root, stream)
            return
        given = self.send.size, self.nccl.type(self.send.dtype)
        op = getattr(self.nccl.library, OPERATIONS[self.op.name])
        if VERBS[self.what].spreads:
            group.allReduce(send, recv, *given, op, stream)
        else:
            group.reduce(send, recv, *given, op, self.root, stream)

    def _call_parts(self, send: int, recv: int, stream: int) -> None:
        """Call NCCL for each part: parts may differ in length, which its own collectives of blocks can't have."""
        group, size, mine = self.nccl.group, self.send.dtype.itemsize, self.send if self.op is None else self.recv
        if self.what == "scatter":
            mine = self.recv
        places = {start: address(own) for (start, _), own in own_parts(self.parts, self.rank, mine)}
        byte, op = self.nccl.type(np.dtype(np.uint8)), self.op and getattr(self.nccl.library, OPERATIONS[self.op.name])
        for rank, (start, stop) in ((rank, part) for rank, each in enumerate(self.parts) for part in each):
            nbytes, here = (stop - start) * size, rank == self.rank
            if start == stop:
                continue
            if op is not None:
                source = send + start * size
                number = self.nccl.type(self.send.dtype)
                group.reduce(source, places[start] if here else source, stop - start, number, op, rank, stream)
            elif VERBS[self.what].spreads:
                target = recv + start * size
                group.broadcast(places[start] if here else target, target, nbytes, byte, rank, stream)
            else:
                gives, gets = (rank, self.root) if self.what == "gather" else (self.root, rank)
                if self.rank == gives:
                    group.send(
                        places[start] if self.what == "gather" else send + start * size, nbytes, byte, gets, stream
                    )
                if self.rank == gets:
                    group.recv(
                        recv + start * size if self.what == "gather" else places[start], nbytes, byte, gives, stream
                    )


class NcclCommunicators:
    """NCCL's communicators over the same ranks, shared by all that need them; each is made at its first use."""

    def __init__(self) -> None:
        self._communicators: dict[str, NcclCommunicator] = {}
        self.logged: set[tuple[str, str]] = set()  # collectives and algorithms whose replacement is in the log

    def get(self, name: str, comm: MPI.Intracomm, device: Device) -> NcclCommunicator:
        """Return the communicator of that name, over the ranks of `comm`. Collective."""
        if name not in self._communicators:
            self._communicators[name] = NcclCommunicator(comm, device)
        return self._communicators[name]

    def free(self) -> None:
        """Free all of them. Collective."""
        while self._communicators:
            self._communicators.popitem()[1].free()


def version(library: Any) -> str:
    """Return NCCL's version in its usual form: 2.28.9."""
    number = library.get_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
