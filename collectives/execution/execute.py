"""Execution: one rank's steps of a schedule over MPI, with receives posted ahead and sends in the background."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collectives.execution.operations import Operation
from collectives.execution.transport import Awaited, HostTransport, Rounded, Transport
from collectives.schedules.schedule import OUT, OWN, Schedule, Step, StepKind, slots

if TYPE_CHECKING:
    from mpi4py import MPI

FIRST = -1  # the number of the copy before the first step
AHEAD = 4  # receives posted before their turn
IN_FLIGHT = 1 << 19  # bytes that a rank sends before it waits for their arrival; two messages in any case
MOST_SENDS = 64  # so many messages at most: those to a lost rank keep some of Open MPI's 512 buffers for ever


@dataclass(frozen=True)
class InFlight:
    """How many receives an execution posts ahead, and how many sends it leaves unfinished."""

    receives: int = AHEAD
    sends: int = 4


def sends_in_flight(nbytes: int) -> int:
    """Return how many messages of so many bytes a rank sends before it waits for their arrival."""
    return max(2, min(MOST_SENDS, IN_FLIGHT // max(nbytes, 1)))


class Execution:
    """One rank's steps over its arrays: made once, run any number of times without allocating memory.

    - `own`: this rank's contribution; None where the steps don't read it.
    - `out`: the array of the result, or of a broadcast's data; None where the steps don't touch it. It may be `own`.
    - `comm`: carries nothing else at the same time; messages have the schedule's tags.
    - `op`: the reduction; None for a broadcast.
    - `transport`: that of the arrays' memory, used by no other execution; HostTransport by default.
    - `in_flight`: by default AHEAD receives, and sends up to IN_FLIGHT bytes.
    - `start`: the element of the vector with which `out` begins, 0 for the whole vector.

    Both arrays are flat, contiguous and of one type. Where nothing is joined, `own` is copied into `out` at first.
    """

    def __init__(
        self,
        schedule: Schedule,
        comm: MPI.Intracomm,
        op: Operation | None,
        own: Any,
        out: Any,
        transport: Transport | None = None,
        in_flight: InFlight | None = None,
        start: int = 0,
    ):
        given = out if own is None else own
        assert given is not None
        self.comm, self.op, self.steps = comm, op, schedule.rank(comm.rank)
        self.dtype = given.dtype
        self.start, self._brought = start, slice(*schedule.contribution(comm.rank))
        self._place(own, out)
        self._requests: dict[int, Awaited] = {}
        self.transport: Transport = HostTransport() if transport is None else transport
        self.transport.prepare(self.dtype.itemsize * max((step.stop - step.start for step in self.steps), default=0))
        self._scratch = self.transport.empty((slots(self.steps), schedule.slot_elements), self.dtype)
        self._work = [self._prepare(step) for step in self.steps]
        self._receives = [i for i, step in enumerate(self.steps) if step.kind in (StepKind.RECV, StepKind.RECV_ADD)]
        sends = [i for i, step in enumerate(self.steps) if step.kind is StepKind.SEND]
        longest = max((self.steps[i].stop - self.steps[i].start for i in sends), default=0) * self.dtype.itemsize
        in_flight = in_flight or InFlight(AHEAD, sends_in_flight(longest))
        self._ahead, self._sends_in_flight = in_flight.receives, in_flight.sends
        # A short message's send is complete once it is copied. Some sends are synchronous, so that a fast rank does
        # not fill MPI's memory and the links' queues.
        every = max(1, self._sends_in_flight // 2)
        self._synchronous = set(sends[every::every])

    def over(self, own: Any, out: Any) -> Execution:
        """Return an execution of the same steps over other arrays. It shares the scratch memory: one runs at a time."""
        other = copy(self)
        other._place(own, out)
        other.transport.prepare(0)  # the transport makes all messages again
        other._work = [other._prepare(step) for step in self.steps]
        return other

    def _place(self, own: Any, out: Any) -> None:
        """Take the arrays."""
        self._places = {OWN: own, OUT: out}
        self._filled = (out[self._brought], own) if self.op is None and own is not None else None

    def run(self) -> Iterator[Awaited]:
        """Take the steps; yield each request that must be complete before the next step.

        Work on a device may still be under way at the end: the transport's `follow` waits for it.
        """
        transport = self.transport
        self._requests = {}
        self._sends: deque[int] = deque()  # and other steps in the background, in the order of the steps
        self._posted = self._received = 0
        if (ready := transport.begin()) is not None:
            yield ready
        if self._filled is not None:
            self._keep(FIRST, transport.copy(*self._filled))
        self._post(0)
        for i, step in enumerate(self.steps):
            while self._sends and (self._sends[0] <= step.after or len(self._sends) >= transport.in_flight):
                yield self._requests.pop(self._sends.popleft())
            message, operands = self._work[i]
            if step.kind is StepKind.SEND:
                while len(self._sends) >= self._sends_in_flight:
                    yield self._requests.pop(self._sends.popleft())
                self._keep(i, transport.send(self.comm, message, step.peer, step.tag, i in self._synchronous))
            elif step.kind is StepKind.COPY:
                self._keep(i, transport.copy(*operands))
            else:
                if i not in self._requests:
                    self._receive(i)
                yield self._requests.pop(i)
                self._received += 1
                if self.op and operands:
                    self._keep(i, transport.land_joined(self.op, message, *operands))
                else:
                    transport.land(message)
            self._post(i + 1)
        for i in self._sends:
            if i > FIRST and self.steps[i].kind is StepKind.SEND:
                yield self._requests[i]

    def under_way(self) -> Iterator[Awaited]:
        """Iterate over the requests of a run that was broken off, to wait for them; some may be complete."""
        while self._requests:
            yield self._requests.popitem()[1]

    def give_lost(self, vector: Any) -> None:
        """Add what rounding has lost in this rank's messages to their elements of a vector, and keep it no longer."""
        for step, (message, _) in zip(self.steps, self._work, strict=True):
            if isinstance(message, Rounded):
                message.give_lost(vector[step.start : step.stop])

    def _keep(self, i: int, request: Awaited | None) -> None:
        """Keep the request of step `i`, if any, among those in the background."""
        if request is not None:
            self._requests[i] = request
            self._sends.append(i)

    def _post(self, at: int) -> None:
        """Post receives ahead of step `at`, as many as allowed and whose places are free."""
        last = min(len(self._receives), self._received + self._ahead)
        while self._posted < last:
            i = self._receives[self._posted]
            if self.steps[i].after >= at or not self._has_sent(self.steps[i].after):
                return
            self._receive(i)

    def _receive(self, i: int) -> None:
        """Post the receive of step `i`."""
        step = self.steps[i]
        self._requests[i] = self.transport.receive(self.comm, self._work[i][0], step.peer, step.tag)
        self._posted += 1

    def _has_sent(self, last: int) -> bool:
        """Return whether all sends up to step `last` are complete."""
        while self._sends and self._sends[0] <= last:
            if not self._requests[self._sends[0]].Test():
                return False
            del self._requests[self._sends.popleft()]
        return True

    def _prepare(self, step: Step) -> tuple[Any, tuple[Any, ...]]:
        """Return a step's message in the transport's form, and the arrays that it copies or adds, the target first."""
        if step.kind is StepKind.COPY:
            return [], (self._view(step.target, step), self._view(step.source, step))
        sent = step.kind is StepKind.SEND
        moved = self._view(step.source if sent else step.target if step.kind is StepKind.RECV else step.slot, step)
        self.transport.place = step.source if sent else OUT
        message = self.transport.message(moved, sent)
        if step.kind is not StepKind.RECV_ADD:
            return message, ()
        return message, (self._view(step.target, step), self._view(step.source, step), moved)

    def _view(self, place: int, step: Step) -> Any:
        """Return a step's elements in the vectors or in a slot."""
        if place >= 0:
            return self._scratch[place, : step.stop - step.start]
        array = self._places[place]
        assert array is not None
        start = self.start if place == OUT else 0
        return array[step.start - start : step.stop - start]
