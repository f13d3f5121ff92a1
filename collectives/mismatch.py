"""Mismatch: how a rank that is in another call than the others reaches them, in known calls too.

A call that was made before compares nothing across ranks. A rank whose call is wrong, or new to it, waits to agree
with others, who may be in such a known call and never come. So it asks them where they are; a thread of theirs answers.
Where all others are in one known call, this rank takes part in it, with the arrays of an earlier such call, so that it
ends. Then all compare their calls, as in a new one, and raise the same error. The known call's results are worthless.
"""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import WeakSet

from collectives.agreement import share

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.execution.maker import Call

LOOK = 0.5  # seconds between two looks for questions
QUESTION, ANSWER = 1, 2  # tags
AGREES, HAS_LEFT = "agrees", "has left"  # the others then come, or never
Place: TypeAlias = "tuple[Call, int, bool] | str"  # where a rank is: in the known call of this plan, AGREES or HAS_LEFT


class NumberedCalls(Protocol):
    """The calls of a Communicator: `entered` is the number of the last one."""

    comm: MPI.Intracomm
    entered: int

    @property
    def is_running(self) -> bool:
        """Return whether this rank is in a known call."""

    def place(self, number: int) -> Place:
        """Return where this rank is, of the call with a number that it has entered. For another thread."""

    def take_part(self, place: tuple[Call, int, bool]) -> bool:
        """Run a known call for the others' sake. Return False if it can't be run."""


class Mismatch:
    """What a Communicator's ranks ask and answer about the call with a number, which all of them count alike."""

    def __init__(self, calls: NumberedCalls):
        self._calls = calls
        self.comm: MPI.Intracomm | None = None  # on which ranks agree that may be in known calls of the Communicator's
        self.has_begun = False
        self._number = 0  # of the call that this rank has asked about
        self._places: dict[int, Place] = {}  # answers, by rank
        self._open: dict[int, int] = {}  # questions that others wait for: the number of the call, by rank
        self._answering, self._sends = threading.Lock(), threading.Lock()  # two threads do both
        self._sent: list[MPI.Request] = []
        self._balance: list[int] = []  # 1 for each message sent, -1 for each received; two threads append
        self._seen = 0  # the number of the known call in which this rank was at the last look

    def begin(self) -> None:
        """Be ready for questions, where MPI's thread level is MPI_THREAD_MULTIPLE on all ranks. Collective."""
        self.has_begun = True
        if share(self._calls.comm, None, is_threaded()):
            self.comm = self._calls.comm.Dup()
            ANSWERS.add(self)

    def free(self) -> None:
        """Answer no more. Collective."""
        self.abandon()
        if self.comm is not None:
            while self.comm.allreduce(sum(self._balance)):  # a message that is left would come to a later communicator
                self._received(QUESTION)
                self._received(ANSWER)
            for request in self._sent:
                request.Wait()
            self.comm.Free()
            self.comm = None

    def abandon(self) -> None:
        """Answer no more, since a rank is lost. Not collective."""
        ANSWERS.drop(self)

    def reach(self) -> bool:
        """Ask the others where they are; take part in the known call in which they are. Return False if none can be.

        For a rank that waits to agree, which calls this again and again. False says that others have left the call of
        this number, or that they are in several.
        """
        if self._number != self._calls.entered:
            self._number = self._calls.entered
            self._places = {}
            for rank in self._others():
                self._send(self._number, rank, QUESTION)
        self._answer(self._number)
        for rank, (number, place) in self._received(ANSWER):
            if number == self._number:
                self._places[rank] = place
        known = {place for place in self._places.values() if place != AGREES}
        if known and len(self._places) == len(self._others()):
            place = known.pop()
            self._places = {}  # once
            return not (known or isinstance(place, str)) and self._calls.take_part(place)
        return HAS_LEFT not in known

    def look(self) -> None:
        """Answer the questions of others, if this rank has been in one known call since the last look. For a thread."""
        seen, self._seen = self._seen, self._calls.entered if self._calls.is_running else 0
        if seen and seen == self._seen:
            self._answer(seen)

    def _answer(self, newest: int) -> None:
        """Answer the questions about calls up to the newest one of which this thread knows where this rank is."""
        with self._answering:
            self._open.update(self._received(QUESTION))
            for rank, number in list(self._open.items()):
                if number <= newest:
                    del self._open[rank]
                    self._send((number, self._calls.place(number)), rank, ANSWER)

    def _others(self) -> list[int]:
        """Return the other ranks."""
        assert self.comm is not None
        return [rank for rank in range(self.comm.size) if rank != self.comm.rank]

    def _send(self, message: Any, rank: int, tag: int) -> None:
        """Send a small message, without waiting."""
        assert self.comm is not None
        with self._sends:
            self._sent = [one for one in self._sent if not one.Test()]
            self._sent.append(self.comm.isend(message, rank, tag))
        self._balance.append(1)

    def _received(self, tag: int) -> list[tuple[int, Any]]:
        """Return the messages that have come, with their ranks."""
        from mpi4py import MPI

        assert self.comm is not None
        found, status = [], MPI.Status()
        while self.comm.iprobe(MPI.ANY_SOURCE, tag, status):  # one thread at a time receives messages of a tag
            found.append((status.source, self.comm.recv(source=status.source, tag=tag)))
            self._balance.append(-1)
        return found


class Answers:
    """The thread of this process that answers questions. It calls MPI in known calls that last longer than LOOK."""

    def __init__(self) -> None:
        self._lock, self._mismatches = threading.Lock(), WeakSet[Mismatch]()
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()

    def add(self, one: Mismatch) -> None:
        """Look for this one's questions from now on."""
        with self._lock:
            self._mismatches.add(one)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="collectives answers", daemon=True)
            self._thread.start()
            atexit.register(self.end)

    def drop(self, one: Mismatch) -> None:
        """Look no more, and be in no call of MPI for it, when this returns."""
        with self._lock:
            self._mismatches.discard(one)

    def end(self) -> None:
        """End the thread, before MPI ends."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        """Look again and again. A communicator that fails has lost a rank: nobody asks there any more."""
        while not self._ends.wait(LOOK):
            with self._lock:
                for one in list(self._mismatches):
                    try:
                        one.look()
                    except Exception:
                        self._mismatches.discard(one)


def is_threaded() -> bool:
    """Return whether any thread may call MPI."""
    from mpi4py import MPI

    return bool(MPI.Query_thread() == MPI.THREAD_MULTIPLE)


ANSWERS = Answers()  # of this process
