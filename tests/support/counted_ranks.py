"""Ranks as threads of one process, whose communicators count what MPI's would send.

Only the communicator and the shared window are made up. What a collective sends is counted as a library sends it that
knows nothing of the network: an allreduce is a reduce and a broadcast along binomial trees, an allgather Bruck's; a
gather is direct; a new communicator is an allreduce of 8 bytes, by a split an allgather of 8 bytes a rank.
"""

from __future__ import annotations

import pickle
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil, log2
from types import SimpleNamespace
from typing import Any

import numpy as np
from mpi4py import MPI

JOINED = (MPI.MAX, np.maximum), (MPI.MIN, np.minimum), (MPI.SUM, np.add), (MPI.BOR, np.bitwise_or)
PLACE = threading.local()  # of a rank's thread: rank and node


def joined(op: MPI.Op) -> np.ufunc:
    return next(function for one, function in JOINED if one == op)


class Counts:
    """Calls, messages that are sent and bytes that are received, by rank."""

    def __init__(self, size: int, each: int):
        self.size, self.each = size, each
        self.calls: list[Counter[str]] = [Counter() for _ in range(size)]
        self.messages, self.nbytes = np.zeros(size), np.zeros(size)
        self.near = np.zeros(size)  # messages of communicators within a node
        self.sent: list[Counter[int]] = [Counter() for _ in range(size)]  # bytes of single messages, by their ranks

    def add(self, rank: int, what: str, messages: float, nbytes: float, is_near: bool) -> None:
        self.calls[rank][what] += bool(what)
        self.near[rank] += messages * is_near
        self.messages[rank] += messages
        self.nbytes[rank] += nbytes

    def of(self, rank: int) -> np.ndarray:
        """Return a rank's calls, messages, those within its node, and bytes, until now."""
        return np.array([sum(self.calls[rank].values()), self.messages[rank], self.near[rank], self.nbytes[rank]])


class Meetings:
    """Where the ranks of communicators bring what a collective needs."""

    def __init__(self) -> None:
        self.changed, self.failed = threading.Condition(), False  # changed: by messages
        self.brought: defaultdict[Any, dict[int, Any]] = defaultdict(dict)
        self.complete: defaultdict[Any, threading.Event] = defaultdict(threading.Event)  # to wake nobody else

    def meet(self, key: Any, rank: int, size: int, mine: Any) -> list[Any]:
        with self.changed:
            found, complete = self.brought[key], self.complete[key]
            found[rank] = mine
            if len(found) == size or self.failed:
                complete.set()
        if not complete.wait(600):
            raise RuntimeError(f"{key}: {size - len(found)} ranks do not come")
        if len(found) < size:
            raise RuntimeError("another rank has failed")
        return [found[k] for k in sorted(found)]

    def post(self, key: Any, message: np.ndarray) -> None:
        """Leave a message for a receive of the same key and number."""
        with self.changed:
            sent = self.brought["sent", key]
            sent[len(sent)] = message
            self.changed.notify_all()

    def fail(self) -> None:
        with self.changed:
            self.failed = True
            self.changed.notify_all()
            for complete in self.complete.values():
                complete.set()


class CountedComm(MPI.Intracomm):
    """The communicator of some ranks, by their numbers in the job, as one of them, `me`, has it."""

    def __new__(cls, *given: Any) -> CountedComm:
        return super().__new__(cls, MPI.COMM_SELF)

    def __init__(self, meetings: Meetings, counts: Counts, members: Sequence[int], me: int, key: Any = ()):
        self.meetings, self.counts, self.members, self.me, self.key = meetings, counts, tuple(members), me, key
        self.position, self.number, self.made = self.members.index(me), 0, Counter[Any]()
        self.lost: list[int] = []

    rank = property(lambda self: self.position)  # type: ignore[assignment]
    size = property(lambda self: len(self.members))  # type: ignore[assignment]
    group = property(lambda self: SimpleNamespace(Incl=lambda ranks: Chosen(ranks), Free=lambda: None))  # type: ignore

    def _meet(self, mine: Any) -> list[Any]:
        self.number += 1
        return self.meetings.meet((self.key, self.members, self.number), self.me, self.size, mine)

    def _count(self, what: str, messages: float, nbytes: float) -> None:
        is_near = self.members[0] // self.counts.each == self.members[-1] // self.counts.each
        given = (messages, nbytes) if self.size > 1 else (0.0, 0.0)
        self.counts.add(self.me, what, *given, is_near)

    def _tree(self, what: str, nbytes: float, ways: int) -> None:
        """Count messages of as many bytes over the edges of a binomial tree, to the root or from it or both."""
        rounds = ceil(log2(max(self.size, 2)))
        low = rounds if self.rank == 0 else (self.rank & -self.rank).bit_length() - 1
        children = sum(self.rank + (1 << k) < self.size for k in range(low))
        up, down = self.rank > 0, children
        sent = (down if ways == 1 else up + down) if self.size > 1 else 0
        received = (up if ways == 1 else up + down) if self.size > 1 else 0
        self._count(what, sent, received * nbytes)

    def _other(self, members: Sequence[int], what: str) -> CountedComm:
        self.made[tuple(members)] += 1
        return CountedComm(self.meetings, self.counts, members, self.me, (self.key, what, self.made[tuple(members)]))

    # Collectives.

    def Allreduce(self, send: Any, recv: np.ndarray, op: Any = MPI.SUM) -> None:  # type: ignore[override]
        self._tree("allreduce", recv.nbytes, 2)
        every = self._meet((recv if send is MPI.IN_PLACE else send).copy())
        recv[...] = joined(op).reduce(np.stack(every).astype(recv.dtype), axis=0)

    def Iallreduce(self, send: Any, recv: np.ndarray, op: Any = MPI.SUM) -> Any:  # type: ignore[override]
        self.Allreduce(send, recv, op)
        return SimpleNamespace(Wait=lambda: None, Test=lambda: True)

    def allreduce(self, value: Any, op: Any = MPI.SUM) -> Any:
        self._tree("allreduce", 8, 2)
        return joined(op).reduce(self._meet(value))

    def bcast(self, value: Any, root: int = 0) -> Any:
        found = self._meet(pickle.dumps(value) if self.rank == root else None)[root]
        self._tree("bcast", 8, 1)  # of the length
        self._tree("", len(found), 1)
        return pickle.loads(found)

    def Bcast(self, array: Any, root: int = 0) -> None:
        self._tree("bcast", array.nbytes, 1)
        array[...] = self._meet(array.copy() if self.rank == root else None)[root]

    def allgather(self, value: Any) -> list[Any]:
        every = self._meet(pickle.dumps(value))
        rounds = ceil(log2(max(self.size, 1))) if self.size > 1 else 0
        self._count("allgather", 2 * rounds, sum(map(len, every)) - len(every[self.rank]) + 4 * (self.size - 1))
        return [pickle.loads(one) for one in every]

    def Allgather(self, send: np.ndarray, recv: np.ndarray) -> None:  # type: ignore[override]
        self._count("allgather", ceil(log2(self.size)) if self.size > 1 else 0, send.nbytes * (self.size - 1))
        recv[...] = np.concatenate(self._meet(send.copy())).reshape(recv.shape)

    def Allgatherv(self, send: np.ndarray, recv: Any) -> None:  # type: ignore[override]
        self._count("allgather", ceil(log2(self.size)) if self.size > 1 else 0, recv[0].nbytes - send.nbytes)
        recv[0][...] = np.concatenate(self._meet(send.copy()))

    def gather(self, value: Any, root: int = 0) -> list[Any] | None:
        every = self._meet(pickle.dumps(value))
        self._count("gather", 2 * (self.rank != root), sum(map(len, every)) if self.rank == root else 0)
        return [pickle.loads(one) for one in every] if self.rank == root else None

    def Igatherv(self, send: Any, recv: Any, root: int = 0) -> Any:  # type: ignore[override]
        """Take all ranks' blocks, each sent straight to the root."""
        self._count("gather", self.rank != root, 0)
        every = self._meet(flat(send).copy())
        if self.rank == root:
            flat(recv)[...] = np.concatenate(every)
        return SimpleNamespace(Wait=lambda: None, Test=lambda: True)

    def Iscatterv(self, send: Any, recv: Any, root: int = 0) -> Any:  # type: ignore[override]
        """Give each rank its block, straight from the root."""
        self._count("scatter", 0, flat(recv).nbytes)
        whole, (counts, starts) = self._meet(None if send is None else (flat(send).copy(), send[1]))[root]
        size = whole.size // sum(counts)
        flat(recv)[...] = whole[size * starts[self.rank] :][: size * counts[self.rank]]
        return SimpleNamespace(Wait=lambda: None, Test=lambda: True)

    def Barrier(self) -> None:
        self._tree("barrier", 0, 2)
        self._meet(None)

    def shared(self, value: Any) -> list[Any]:
        """Return what all ranks bring, the objects themselves, uncounted: memory that they share."""
        return self._meet(value)

    # Messages.

    def Isend(self, message: Any, peer: int, tag: int = 0) -> Any:  # type: ignore[override]
        """Leave a copy for the receiver. MPI's datatype beside an array is not looked at."""
        array = flat(message)
        self.counts.sent[self.me][self.members[peer]] += array.nbytes
        self.meetings.post((self.key, self.members, self.rank, peer, tag), array.copy())
        return SimpleNamespace(Wait=lambda: None, Test=lambda: True)

    Issend = Isend  # type: ignore[assignment]

    def Irecv(self, message: Any, peer: int, tag: int = 0) -> Any:  # type: ignore[override]
        key = self.key, self.members, peer, self.rank, tag
        self.made["received", key] += 1
        return Receive(self.meetings, key, self.made["received", key] - 1, flat(message))

    # Communicators.

    def Dup(self) -> CountedComm:  # type: ignore[override]
        self._tree("new communicator", 8, 2)
        return self._other(self.members, "dup")

    def Create_group(self, group: Any, tag: int = 0) -> CountedComm:  # type: ignore[override]
        made = self._other([self.members[k] for k in group.ranks], "group")
        made._tree("new communicator", 8, 2)
        return made

    def Split_type(self, *given: Any, **named: Any) -> CountedComm:  # type: ignore[override]
        self._tree("new communicator", 8, 2)
        nodes = self._meet(PLACE.node)
        here = [one for one, node in zip(self.members, nodes, strict=True) if node == PLACE.node]
        return self._other(here, "node")

    def Split(self, color: int = 0, key: int = 0) -> CountedComm:  # type: ignore[override]
        self._count("split", ceil(log2(max(self.size, 2))), 8 * (self.size - 1))
        colors = self._meet(color)
        return self._other([one for one, other in zip(self.members, colors, strict=True) if other == color], "split")

    def Free(self) -> None:
        """Do nothing."""


def flat(message: Any) -> np.ndarray:
    """Return the bytes of a message: of an array, of a stand-in's, or of a list that begins with one."""
    array = message[0] if isinstance(message, list) else message
    return getattr(array, "values", array).reshape(-1).view(np.uint8)


class Receive:
    """The request of one receive, in the order of their posting."""

    def __init__(self, meetings: Meetings, key: Any, number: int, array: np.ndarray):
        self.meetings, self.sent, self.number, self.array = meetings, meetings.brought["sent", key], number, array

    def Test(self) -> bool:
        with self.meetings.changed:
            if self.number in self.sent:
                self.array[...] = self.sent[self.number]
        return self.number in self.sent

    def Wait(self) -> None:
        with self.meetings.changed:
            if not self.meetings.changed.wait_for(lambda: self.number in self.sent or self.meetings.failed, 600):
                raise RuntimeError("a message does not come")
        self.Test()


class Chosen:
    """Some ranks of a communicator."""

    def __init__(self, ranks: Sequence[int]):
        self.ranks = ranks

    def Free(self) -> None:
        """Do nothing."""


class MadeUpWindow:
    """A window whose segments are arrays of this process."""

    def __init__(self, comm: CountedComm, nbytes: int):
        self.own = np.zeros(nbytes, np.uint8)
        self.segments, self.nbytes, self.key = comm.shared(self.own), nbytes, ""

    def array(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        return self.own[: int(np.prod(shape)) * np.dtype(dtype).itemsize].view(dtype).reshape(shape)

    def offset(self, where: int, nbytes: int) -> int:
        return 0 if where == self.own.ctypes.data and self.nbytes else -1

    def sync(self) -> None:
        """Do nothing."""

    def free(self) -> None:
        """Do nothing."""


@contextmanager
def on_nodes(monkeypatch: Any) -> Iterator[None]:
    """Let a rank's thread be on a host named by its node, with windows that are made up.

    What ranks tell of their cores and process is made up too, so that the bytes are the same on each machine.
    """
    from collectives.execution import node
    from scaffe.files.lock_owner import Owner
    from scaffe.parallel.watch import heartbeats

    def process() -> Owner:
        machine = "01234567-89ab-cdef-0123-456789abcdef pid:[4026531836]"
        return Owner(socket.gethostname(), 2**20, 10**7, machine, "", 0, f"{PLACE.rank:016x}")

    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 2, 3})
    monkeypatch.setattr("scaffe.parallel.hosts.this_process", process)
    monkeypatch.setattr("socket.gethostname", lambda: f"node{getattr(PLACE, 'node', 0):05}.cluster")
    for module in (node, heartbeats):
        monkeypatch.setattr(module, "SharedWindow", MadeUpWindow)
    yield


@contextmanager
def on_gpu_nodes(monkeypatch: Any, why_no_nccl: str) -> Iterator[None]:
    """Let ranks be on nodes as `on_nodes` does, with GPUs and without NCCL, which has no threads for ranks."""
    from collectives.execution.device.choice import DevicePlans

    monkeypatch.setattr(DevicePlans, "has_local_nccl", False)
    monkeypatch.setattr(DevicePlans, "why_no_nccl", why_no_nccl)
    with on_nodes(monkeypatch):
        yield


def run(size: int, each: int, work: Callable[[CountedComm], Any]) -> list[Any]:
    """Run `work(comm)` on `size` ranks, `each` a node; return the results by rank."""
    meetings, counts = Meetings(), Counts(size, each)
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def main(rank: int) -> None:
        PLACE.rank, PLACE.node = rank, rank // each
        try:
            results[rank] = work(CountedComm(meetings, counts, range(size), rank))
        except BaseException as error:
            errors.append(error)
            meetings.fail()

    threads = [threading.Thread(target=main, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
