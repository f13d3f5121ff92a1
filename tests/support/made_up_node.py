"""A made-up MPI for the ranks of nodes, in one process: windows, barriers and messages as unlucky as MPI allows.

Ranks run one at a time, each in a thread, and give way only where they wait in a call; `simulation.adversary` says
which of them goes on and when messages move and barriers open. Of MPI only the communicator and `MPI.Win` are made
up; a window refuses what the real one refuses.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from collectives.errors import ScheduleError
from collectives.simulation.adversary import LazyDelivery, Network, SimulatedComm, SimulatedRequest

JUNK = 0xA5  # of which memory is full that nobody has written to

PAGE = 4096  # bytes


class Abandoned(BaseException):
    """Ends the threads of a run that has failed."""


class Fibre:
    """A rank's work, which waits inside its calls, as an iterator over what it waits for."""

    def __init__(self, work: Callable[[], object]):
        self._work, self._awaited = work, None
        self._go, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self._ended, self._abandoned, self._error = False, False, None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.fibre = self  # type: ignore[attr-defined]
        self._thread.start()

    def __iter__(self) -> Fibre:
        return self

    def __next__(self) -> SimulatedRequest:
        self._go.release()
        self._paused.acquire()
        if self._error is not None:
            raise self._error
        if self._ended:
            raise StopIteration
        return self._awaited

    def block(self, end: SimulatedRequest) -> None:
        """Give way until `end` is complete; called by the work."""
        self._awaited = end
        self._paused.release()
        self._go.acquire()
        if self._abandoned:
            raise Abandoned

    def abandon(self) -> None:
        """End the work where it waits."""
        self._abandoned = True
        self._go.release()
        self._thread.join()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._abandoned:
                self._work()
        except Abandoned:
            pass
        except BaseException as error:
            self._error = error
        self._ended = True
        self._paused.release()


class Fibres(Network):
    """A network on which ranks may wait inside their calls."""

    def __init__(self, size: int, order: LazyDelivery, coherent: bool):
        super().__init__(size, order)
        self.coherent = coherent
        self.meetings: defaultdict[tuple, list] = defaultdict(list)
        self.windows: list[list[MadeUpWin]] = [[] for _ in range(size)]

    def block(self, end: SimulatedRequest) -> None:
        threading.current_thread().fibre.block(end)  # type: ignore[attr-defined]

    def work(self, work: Callable[[int], object]) -> None:
        """Run `work(rank)` on all ranks to their ends."""
        fibres = [Fibre(lambda rank=rank: work(rank)) for rank in range(self.size)]  # type: ignore[misc]
        try:
            self.run(fibres)
        finally:
            for fibre in fibres:
                fibre.abandon()


class MadeUpComm(SimulatedComm):
    """A communicator of some ranks of a network, by their numbers there; `rank` is that of one among them."""

    def __init__(self, network: Fibres, members: Sequence[int], me: int):
        super().__init__(network, members.index(me))
        self.network: Fibres = network
        self.members, self.me, self.size = tuple(members), me, len(members)
        self._calls = 0

    def _channel(self, source: int, dest: int, tag: int) -> tuple:
        return self.members[source], self.members[dest], (self.members, tag)

    def meet(
        self, what: str, mine: Any, take: Callable[[list], object], sent: np.ndarray | None = None
    ) -> SimulatedRequest:
        """Come to a collective: once all have, each may take what all brought, at a time of its own."""
        self._calls += 1
        brought = self.network.meetings[self.members, self._calls]
        end = self.network.begin(self.me, None, sent)
        brought.append((self.rank, what, mine, take, end))
        if any(other != what for _, other, *_ in brought):
            raise ScheduleError(f"rank {self.me} came to {what}, another to {brought[0][1]}")
        if len(brought) == self.size:
            brought.sort(key=lambda each: each[0])
            everything = [each[2] for each in brought]
            for _, _, _, take, end_of in brought:
                self.network.may_move(lambda take=take: take(everything), end_of)  # type: ignore[misc]
        return end

    def Ibarrier(self) -> SimulatedRequest:
        return self.meet("a barrier", None, lambda brought: None)

    def Barrier(self) -> None:
        self.Ibarrier().Wait()

    def Iallgather(self, send: Sequence[Any], recv: Sequence[Any]) -> SimulatedRequest:
        mine, room = send[0], recv[0].reshape(self.size, -1)

        def take(brought: list) -> None:
            room[...] = brought

        return self.meet("an allgather", mine, take, sent=mine)

    def Allgather(self, send: Sequence[Any], recv: Sequence[Any]) -> None:
        self.Iallgather(send, recv).Wait()

    def allgather(self, mine: Any) -> list:
        found: list = []
        self.meet("an allgather of objects", mine, found.extend).Wait()
        return found


class MadeUpWin:
    """A shared window of memory that is made up: on `MPI.Win`'s place.

    On a coherent network all ranks write to the same memory. Else each sees copies of its own of all segments: what it
    writes goes to the memory when it calls `Sync`, and what others wrote is seen from its next `Sync` on. As in the
    libraries, that is a fence for all of the rank's windows.
    """

    def __init__(self, comm: MadeUpComm, segments: list[np.ndarray]):
        self.comm, self._memory, self._state = comm, segments, "made"
        self._coherent = comm.network.coherent
        self._seen = segments if self._coherent else [copied(segment) for segment in segments]
        self._given = [segment.copy() for segment in self._seen]  # at the last Sync
        comm.network.windows[comm.me].append(self)

    @classmethod
    def Allocate_shared(cls, size: int, disp_unit: int, comm: MadeUpComm) -> MadeUpWin:
        assert size >= 0 and disp_unit == 1
        return cls(comm, comm.allgather(copied(np.full(size, JUNK, np.uint8))))

    def Shared_query(self, rank: int) -> tuple[memoryview, int]:
        assert self._state != "free" and 0 <= rank < self.comm.size
        return memoryview(self._seen[rank]), 1

    def Lock_all(self) -> None:
        self._become("locked", since="made")

    def Unlock_all(self) -> None:
        self._become("made", since="locked")

    def Free(self) -> None:
        self._become("free", since="made")
        self.comm.network.windows[self.comm.me].remove(self)
        self.comm.Barrier()

    def Sync(self) -> None:
        assert self._state == "locked", "MPI_Win_sync outside an access epoch"
        if not self._coherent:
            for window in self.comm.network.windows[self.comm.me]:
                window.meet_memory()

    def meet_memory(self) -> None:
        """Give what has been written here, and see what others gave."""
        for memory, seen, given in zip(self._memory, self._seen, self._given, strict=True):
            written = seen != given
            memory[written] = seen[written]
            seen[...] = given[...] = memory

    def _become(self, state: str, since: str) -> None:
        assert self._state == since, f"a window that is {self._state} can't become {state}"
        self._state = state


def copied(segment: np.ndarray) -> np.ndarray:
    """Return a copy that begins, as the pages that a system shares do, at a round address."""
    room = np.empty(segment.size + PAGE, np.uint8)
    start = -room.ctypes.data % PAGE
    room[start : start + segment.size] = segment
    return room[start : start + segment.size]
