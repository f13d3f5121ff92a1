"""Execution: one rank's part of a schedule over MPI, with receives posted ahead and sends in the background."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from collectives.operations import Operation, wide
from collectives.schedule import OUT, OWN, Op, Schedule, Step, slots

if TYPE_CHECKING:
    from mpi4py import MPI

AHEAD = 4  # receives that are posted before their turn
IN_FLIGHT = 1 << 19  # bytes that a rank sends before it knows of their arrival, but two messages always


def message_type(dtype: np.dtype) -> MPI.Datatype:
    """Return MPI's name of a type; elements of half precision travel as pairs of bytes."""
    from mpi4py import MPI

    names = {"f4": MPI.FLOAT, "f8": MPI.DOUBLE, "f2": MPI.INT16_T, "i4": MPI.INT32_T, "i8": MPI.INT64_T}
    return names.get(dtype.str[1:], MPI.BYTE)


class Execution:
    """A rank's steps over its arrays, made once and run any number of times: a run allocates nothing.

    `own` is the rank's contribution and `out` where the result, or for a broadcast the data, stands: flat, contiguous,
    of one type; they may be the same, and either may be None where the steps don't touch it. Messages have the
    schedule's tags; `comm` carries nothing else at the same time.
    """

    def __init__(
        self,
        schedule: Schedule,
        comm: MPI.Intracomm,
        op: Operation | None,
        own: np.ndarray | None,
        out: np.ndarray | None,
    ):
        given = out if own is None else own
        assert given is not None
        self.comm, self.op, self.steps = comm, op, schedule.rank(comm.rank)
        self.dtype, self._type = given.dtype, message_type(given.dtype)
        self._places = {OWN: own, OUT: out}
        self._scratch = np.empty((slots(self.steps), schedule.slot_elements), self.dtype)
        self._work = [self._prepare(step) for step in self.steps]
        self._receives = [i for i, step in enumerate(self.steps) if step.op in (Op.RECV, Op.RECV_ADD)]
        sends = [i for i, step in enumerate(self.steps) if step.op is Op.SEND]
        longest = max((self.steps[i].stop - self.steps[i].start for i in sends), default=0) * self.dtype.itemsize
        self._window = max(2, IN_FLIGHT // max(longest, 1))
        # A short message's send is complete once it is copied: without some that tell of their arrival a fast rank
        # would fill the memory of MPI, and the links' queues, with all that it has.
        self._telling = set(sends[self._window // 2 :: self._window // 2])

    def run(self) -> Iterator[MPI.Request]:
        """Take the steps; yield each request that has to be complete before the next step can be taken."""
        self._requests: dict[int, MPI.Request] = {}
        self._sends: deque[int] = deque()
        self._posted = self._received = 0
        self._post(0)
        for i, step in enumerate(self.steps):
            while self._sends and self._sends[0] <= step.after:
                yield self._requests.pop(self._sends.popleft())
            message, operands = self._work[i]
            if step.op is Op.SEND:
                while len(self._sends) >= self._window:
                    yield self._requests.pop(self._sends.popleft())
                send = self.comm.Issend if i in self._telling else self.comm.Isend
                self._requests[i] = send(message, step.peer, step.tag)
                self._sends.append(i)
            elif step.op is Op.COPY:
                np.copyto(operands[0], operands[1])
            else:
                if i not in self._requests:
                    self._receive(i)
                yield self._requests.pop(i)
                self._received += 1
                if self.op and operands:
                    target, source, arrived = operands
                    self.op.ufunc(source, arrived, out=target, dtype=wide(self.dtype), casting="same_kind")
            self._post(i + 1)
        for i in self._sends:
            yield self._requests[i]

    def _post(self, at: int) -> None:
        """Post receives ahead of step `at`, as many as may be and whose places are free."""
        while self._posted < min(len(self._receives), self._received + AHEAD):
            i = self._receives[self._posted]
            if self.steps[i].after >= at or not self._has_sent(self.steps[i].after):
                return
            self._receive(i)

    def _receive(self, i: int) -> None:
        step = self.steps[i]
        self._requests[i] = self.comm.Irecv(self._work[i][0], step.peer, step.tag)
        self._posted += 1

    def _has_sent(self, last: int) -> bool:
        """Return whether all sends up to step `last` are complete."""
        while self._sends and self._sends[0] <= last:
            if not self._requests[self._sends[0]].Test():
                return False
            del self._requests[self._sends.popleft()]
        return True

    def _prepare(self, step: Step) -> tuple[list, tuple[np.ndarray, ...]]:
        """Return a step's message as mpi4py takes it, and the arrays that it copies or adds, the target first."""
        if step.op is Op.COPY:
            return [], (self._view(step.target, step), self._view(step.source, step))
        place = {Op.SEND: step.source, Op.RECV: step.target, Op.RECV_ADD: step.slot}[step.op]
        moved = self._view(place, step)
        message = [moved.view(np.int16) if self.dtype == np.float16 else moved, self._type]
        if step.op is not Op.RECV_ADD:
            return message, ()
        return message, (self._view(step.target, step), self._view(step.source, step), moved)

    def _view(self, place: int, step: Step) -> np.ndarray:
        """Return the elements of a step in the vectors or in a slot."""
        if place >= 0:
            return self._scratch[place, : step.stop - step.start]
        array = self._places[place]
        assert array is not None
        return array[step.start : step.stop]
