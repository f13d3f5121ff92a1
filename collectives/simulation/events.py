"""Replay: run the executions of all ranks, without data, over a network that is only described, and tell the time.

`collectives.model` and `simulation.cost` time schedules so: each rank is an `Execution`, the one that goes over MPI,
with a clock of its own. Every send waits until its receive is posted (rendezvous).

Each rank waits for one certain message at a time and never picks among several, so what happens does not depend on
the order in which ranks are looked at.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from collectives.errors import ScheduleError
from collectives.execution.execute import Execution, InFlight
from collectives.execution.operations import OPERATIONS, Operation
from collectives.execution.transport import HostTransport, Request
from collectives.schedules.schedule import Schedule

SAME = 1 + 1e-12  # times that differ by less are one time, computed in two ways
Channel = tuple[int, int, int]  # source, destination, tag
BYTES = np.dtype(np.uint8)


@dataclass(slots=True)
class Message:
    """A send and its receive: when each was started, when both were, and when the message has arrived.

    It is the request of both ends, but only the sender tests it.
    """

    source: int
    dest: int
    elements: int
    sender: _SimulatedRank | None = None
    sent: float | None = None
    posted: float | None = None
    ready: float = 0.0
    done: float | None = None
    turns: tuple[int, int] = 0, 0  # the numbers of the send and the receive among their ranks' messages

    def Test(self) -> bool:
        return self.done is not None and self.sender is not None and self.done <= self.sender.clock

    def Wait(self) -> None:
        raise NotImplementedError("a rank of a replay waits outside its execution")


class NetworkModel(Protocol):
    """What messages and additions cost."""

    def transfer(self, messages: Sequence[Message], now: float) -> list[tuple[float, Message]]:
        """Start messages, first come first, at the time `now`: set `done`, or return those that must wait till when."""

    def add(self, rank: int, elements: int) -> float:
        """Return the seconds that `rank` takes to add `elements`."""


def simulate(schedule: Schedule, in_flight: InFlight, network: NetworkModel) -> float:
    """Return the time at which the last rank has finished; ScheduleError where ranks wait for ever."""
    return _Simulation(schedule, in_flight, network).run()


class _Lengths:
    """Stands for an array of which only the parts' lengths count: a part is its length."""

    dtype = BYTES

    def __getitem__(self, part: slice) -> int:
        return part.stop - part.start


class _Slots:
    """Stands for scratch in the same way."""

    def __getitem__(self, part: tuple[int, slice]) -> int:
        return part[1].stop


class _SimulatedRank(HostTransport):
    """A rank's clock and execution, whose communicator and memory it is."""

    def __init__(self, world: _Simulation, rank: int):
        self.world, self.rank, self.clock = world, rank, 0.0
        self.awaited: Message | None = None
        self.ended = False
        self._messages = 0
        self._run: Iterator[Request] = iter(())

    def begin_steps(self, schedule: Schedule, in_flight: InFlight) -> None:
        array = _Lengths()
        op = None if schedule.op == "bcast" else OPERATIONS["sum"]
        self._run = Execution(schedule, self, op, array, array, self, in_flight).run()  # type: ignore[arg-type]
        self.advance()

    def advance(self) -> None:
        """Go on until a message has to be waited for that nobody knows the time of."""
        for message in self._run:
            assert isinstance(message, Message)
            if message.done is None:
                self.awaited = message
                return
            self.clock = max(self.clock, message.done)
        self.ended = True

    def woken(self, message: Message) -> None:
        """Go on if this is what the rank waits for."""
        if self.awaited is message:
            assert message.done is not None
            self.awaited, self.clock = None, max(self.clock, message.done)
            self.advance()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        return _Slots()

    def message(self, view: Any, sent: bool) -> Any:
        """Return the message's number among this rank's, and its length."""
        self._messages += 1
        return self._messages, view

    def send(self, comm: Any, message: Any, peer: int, tag: int, synchronous: bool) -> Any:
        return self.world.send(self, message, peer, tag)

    def receive(self, comm: Any, message: Any, peer: int, tag: int) -> Any:
        return self.world.receive(self, message, peer, tag)

    def copy(self, target: Any, source: Any) -> None:
        pass

    def join(self, op: Operation, target: Any, source: Any, arrived: Any) -> None:
        self.clock += self.world.network.add(self.rank, arrived)


class _Simulation:
    def __init__(self, schedule: Schedule, in_flight: InFlight, network: NetworkModel):
        self.network = network
        self._schedule, self._in_flight = schedule, in_flight
        self._ranks = [_SimulatedRank(self, rank) for rank in range(schedule.size)]
        self._halves: defaultdict[Channel, deque[Message]] = defaultdict(deque)  # sends or receives without the other
        self._ready: list[tuple[float, float, tuple[int, int], int, Message]] = []  # by time, first come first
        self._count = 0

    def run(self) -> float:
        for rank in self._ranks:
            rank.begin_steps(self._schedule, self._in_flight)
        while self._ready:
            now = self._ready[0][0]
            together = []
            while self._ready and self._ready[0][0] <= now * SAME:
                together.append(heapq.heappop(self._ready)[-1])
            for time, message in self.network.transfer(together, now):
                self._queue(time, message)
            for message in together:
                if message.done is not None:
                    self._ranks[message.source].woken(message)
                    self._ranks[message.dest].woken(message)
        stuck = sum(not rank.ended for rank in self._ranks)
        if stuck:
            raise ScheduleError(f"{stuck} ranks wait for ever")
        return max(rank.clock for rank in self._ranks)

    def send(self, rank: _SimulatedRank, sent: tuple[int, int], peer: int, tag: int) -> Message:
        message = self._half("sent", (rank.rank, peer, tag), sent[1])
        message.sender, message.sent, message.turns = rank, rank.clock, (sent[0], message.turns[1])
        self._pair(message)
        return message

    def receive(self, rank: _SimulatedRank, received: tuple[int, int], peer: int, tag: int) -> Message:
        message = self._half("posted", (peer, rank.rank, tag), received[1])
        message.posted, message.turns = rank.clock, (message.turns[0], received[0])
        self._pair(message)
        return message

    def _half(self, end: str, channel: Channel, elements: int) -> Message:
        """Return the first message on the channel that has no such `end` yet."""
        halves = self._halves[channel]
        if halves and getattr(halves[0], end) is None:
            return halves.popleft()
        halves.append(Message(channel[0], channel[1], elements))
        return halves[-1]

    def _pair(self, message: Message) -> None:
        if message.sent is not None and message.posted is not None:
            message.ready = max(message.sent, message.posted)
            self._queue(message.ready, message)

    def _queue(self, time: float, message: Message) -> None:
        self._count += 1
        heapq.heappush(self._ready, (time, message.ready, message.turns, self._count, message))
