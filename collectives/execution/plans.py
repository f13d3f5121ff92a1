"""Plans: schedules, or other ways to do a collective, bound to buffers. A plan is made once and run often.

A plan is bound to arrays, then either run, or started and advanced until it has ended. All methods except `mark` and
`follow` are collective, in the same order on all ranks, and called by one thread. Plans of a communicator run one after
the other, in the order of their starts: messages of two would match each other.

On a device a plan has ended when its work is on the device's streams. `mark` records the point on the calling thread's
stream after which the contribution is complete; `follow` makes that stream wait for the result. Neither waits itself,
and for host memory both do nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from collectives.errors import RankLostError
from collectives.execution.execute import Execution, InFlight
from collectives.execution.line import Line
from collectives.execution.node import Requests
from collectives.execution.operations import Operation, wide
from collectives.execution.peer import address
from collectives.execution.transport import Awaited, HostTransport, Transport
from collectives.loss import ignoring_loss, raises_rank_lost
from collectives.progress import PROGRESS
from collectives.schedules.schedule import Schedule, extent_of_out, uses_out

if TYPE_CHECKING:
    from mpi4py import MPI

Array = np.ndarray | None
KEPT, KEPT_BYTES = 8, 1 << 30  # calls, and their bytes, whose arrays a plan keeps


def kept(nbytes: int) -> int:
    """Return for how many calls, of `nbytes` bytes each, a plan keeps the arrays: at least 1."""
    return max(1, min(KEPT, KEPT_BYTES // max(nbytes, 1)))


class Plan:
    """Base of all plans. `op` is None for a broadcast; `recv` is None on ranks without a result."""

    send: np.ndarray = np.empty(0)  # until `bind`
    recv: Array = None
    op: Operation | None = None
    taken = 0  # requests that `advance` has seen complete: shows progress
    failure: Exception | None = None
    _steps: Requests | None = None
    _waiting: Awaited | None = None

    @cached_property
    def line(self) -> Line:
        """The plans under way of its communicator; of itself alone where it has none."""
        return Line()

    def bind(self, send: np.ndarray, recv: Array) -> None:
        """Use these arrays: flat, contiguous, of the type and length that the plan was made for.

        Not collective: each rank binds, and drops, its own arrays. Raise ArgumentError while the plan is under way.
        """
        self.line.check_ended(self, "bind")
        self.send, self.recv = send, recv

    def call_over(self, send: np.ndarray, recv: Array) -> Callable[[], object] | None:
        """Return a function that does the blocking collective over these arrays, if one call of MPI does it."""
        return None

    def free(self) -> None:
        """Free what is held outside this process's memory. Nothing may be under way; device work is awaited."""

    def give_lost(self, vector: np.ndarray) -> None:
        """Add what rounding messages has lost on this rank to a vector of the plan's length, and keep it no longer.

        For "numbers" with feedback, where the next run would add it; the plan is not under way. Not collective.
        """

    def steps(self, wait: bool) -> Requests:
        """Do the work; yield the requests that it must wait for. With `wait` prefer waiting to yielding."""
        raise NotImplementedError

    def under_way(self) -> Requests:
        """Iterate over the requests of a run that was broken off, but for the one that `advance` waits for."""
        return iter(())

    def drain(self) -> None:
        """Wait for all messages of a run that a lost rank has broken off; the plan can't be run again.

        Its communicators are revoked, so that they end. Open MPI ends a process that drops them.
        """
        self.failure = RankLostError("a rank was lost: this plan's communicator was revoked")
        waiting = [] if self._waiting is None else [self._waiting]
        for request in chain(waiting, self.under_way()):
            with ignoring_loss():
                request.Wait()
        self._end()

    def mark(self) -> None:
        """Make the work begin after what is on the calling thread's stream now."""

    def follow(self) -> None:
        """Make the calling thread's stream wait for the result."""

    @raises_rank_lost
    def run(self) -> None:
        """Run to the end, after what the communicator has under way."""
        self.line.finish()
        self.mark()
        for request in self.steps(wait=True):
            request.Wait()
        self.follow()

    def start(self) -> None:
        """Begin without waiting for other ranks. Until the end, whoever waits in this process advances the plan.

        Raise ArgumentError while the plan is under way.
        """
        self.line.check_ended(self, "start")
        self.mark()
        self.begin()
        if self._steps is not None:
            PROGRESS.add(self)

    def begin(self) -> None:
        """Begin as `start` does, after a call of `mark`; the caller alone advances the plan."""
        self.prepare()
        self.line.join(self)
        self.advance()

    def progress(self) -> bool:
        """Advance as far as possible without waiting; return whether anything advanced."""
        before = self.taken
        self.advance()
        return self.taken != before

    @raises_rank_lost
    def advance(self) -> bool:
        """Advance as far as possible without waiting; return whether the end is reached."""
        return PROGRESS.step(self, self._advance)

    def _advance(self) -> bool:
        """Take steps until one must wait, or an earlier plan; return whether the end is reached."""
        try:
            if self._steps is not None and self.line.is_turn(self):
                self.take()
        except Exception:
            self.line.leave(self)
            raise
        return self._steps is None

    def take(self) -> bool:
        """Take steps until one must wait; return whether the end is reached. The caller knows that it is their turn."""
        while self._steps is not None and (self._waiting is None or self._waiting.Test()):
            self._waiting = next(self._steps, None)
            self.taken += 1
            if self._waiting is None:
                self._end()
        return self._steps is None

    @property
    def is_under_way(self) -> bool:
        """Return whether it was started and has not ended. Advances nothing; any thread may ask."""
        return self._steps is not None

    def prepare(self) -> None:
        """Make `take` begin anew."""
        self._steps, self._waiting = self.steps(wait=False), None

    def _end(self) -> None:
        """Forget the run."""
        self._steps = self._waiting = None
        self.line.leave(self)
        PROGRESS.drop(self)

    @raises_rank_lost
    def finish(self) -> None:
        """Wait for the end, then `follow`. Meanwhile all else advances that is under way in this process."""
        PROGRESS.drop(self)
        if self.failure is not None:
            self.advance()
        while self._steps is not None:
            if self._waiting is None or PROGRESS.is_busy:
                PROGRESS.wait_until(lambda: self._steps is None, self)
            else:
                self._waiting.Wait()
                self._waiting = None
                self.advance()
        self.follow()


class TransportPlan(Plan):
    """A plan whose transport knows what is under way on a device."""

    transport: Transport

    def mark(self) -> None:
        """Mark the calling thread's stream."""
        self.transport.mark()

    def follow(self) -> None:
        """Make the calling thread's stream wait for the transport's."""
        self.transport.follow()

    def free(self) -> None:
        """Wait for the transport's last run."""
        self.transport.free()

    def drain(self) -> None:
        """Wait for the messages that have begun; see Plan."""
        self.transport.break_off()
        super().drain()


class SchedulePlan(TransportPlan):
    """A schedule's steps, run by `Execution`."""

    def __init__(
        self,
        schedule: Schedule,
        comm: MPI.Intracomm,
        op: Operation | None,
        transport: Transport | None = None,
        in_flight: InFlight | None = None,
    ):
        self.schedule, self.comm, self.op, self._in_flight = schedule, comm, op, in_flight
        self._start, self._stop = schedule.result(comm.rank)
        steps = schedule.rank(comm.rank)
        first, last = extent_of_out(steps)
        self._uses_out = uses_out(steps)
        self._stays_inside = not self._uses_out or (self._start <= first and last <= self._stop)
        self.transport: Transport = HostTransport() if transport is None else transport
        self._room: Array = None
        self._executions: OrderedDict[tuple[int, int], Execution] = OrderedDict()  # by addresses, latest last

    def bind(self, send: np.ndarray, recv: Array) -> None:
        """Find the execution over these arrays, or make it."""
        super().bind(send, recv)
        place = address(send), 0 if recv is None else address(recv)
        if place not in self._executions:
            self._executions[place] = self._over(*self._vectors(send, recv))
        self._executions.move_to_end(place)
        self._execution = self._executions[place]
        while len(self._executions) > kept(send.nbytes):
            self._executions.popitem(last=False)

    def _over(self, own: Array, out: Array, start: int) -> Execution:
        """Return a new execution. It keeps the arrays, so that no others get their addresses."""
        same = (one for one in self._executions.values() if one.start == start)
        if (found := next(same, None)) is not None:
            return found.over(own, out)
        return Execution(self.schedule, self.comm, self.op, own, out, self.transport, self._in_flight, start)

    def _vectors(self, send: np.ndarray, recv: Array) -> tuple[Array, Array, int]:
        """Return the contribution, where sums are kept, and the element with which that begins.

        `recv` is the whole vector or the rank's result. Sums outside that are kept in scratch of this plan.
        """
        if self.op is None:
            return (None, send, 0) if recv is None or recv is send else (send, recv, 0)
        if recv is not None and (recv.size == self.schedule.elements or self._stays_inside):
            return send, recv, 0 if recv.size == self.schedule.elements else self._start
        if self._room is None and self._uses_out:
            self._room = self.transport.empty((send.size,), send.dtype)
        return send, self._room, 0

    def give_lost(self, vector: np.ndarray) -> None:
        """Add what all executions have lost."""
        for execution in self._executions.values():
            execution.give_lost(vector)

    def under_way(self) -> Requests:
        """Iterate over the requests of all executions."""
        for execution in self._executions.values():
            yield from execution.under_way()

    def steps(self, wait: bool) -> Requests:
        """Take the schedule's steps."""
        yield from self._execution.run()
        if self.op and self.recv is not None:
            result = part_of(self.recv, self._start, self._stop)
            if self.recv is result and self.schedule.elements > result.size and not self._stays_inside:
                self.transport.copy(result, self._room[self._start : self._stop])  # type: ignore[index]
            if self.op.divided:
                self.transport.divide(result, self.schedule.size)
        self.transport.end()


def part_of(array: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Return the elements [start, stop) of a vector of which `array` holds either these or all."""
    return array if array.size == stop - start else array[start:stop]


def divide(values: np.ndarray, ranks: int) -> None:
    """Turn a sum over `ranks` ranks into a mean."""
    np.divide(values, ranks, out=values, dtype=wide(values.dtype), casting="same_kind")
