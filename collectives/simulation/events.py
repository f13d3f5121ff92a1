"""Discrete events: the executions of all ranks, without data, over a network that is only described.

`collectives.model` and `simulation.cost` time schedules in this way: each rank is an `Execution`, the same as over MPI,
with its own clock. Every send waits until its receive is posted (rendezvous).

A rank waits for one given message at a time and never picks among several, so the result does not depend on the order
in which ranks are advanced.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from collectives.errors import ScheduleError
from collectives.execution.execute import Execution, InFlight
from collectives.execution.operations import OPERATIONS, Operation
from collectives.execution.transport import Awaited, HostTransport
from collectives.schedules.schedule import Schedule

SAME = 1 + 1e-12  # times closer than this factor are one time, computed in two ways
Channel = tuple[int, int, int]  # source, destination, tag
BYTES = np.dtype(np.uint8)


@dataclass(slots=True)
class Message:
    """A send and its receive: when each began, when both had, and when the message arrives, in seconds.

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
    ends: list[Any] = field(default_factory=list)  # their requests, where each rank has its own

    def Test(self) -> bool:
        """Return whether it has arrived by the sender's clock."""
        return self.done is not None and self.sender is not None and self.done <= self.sender.clock

    def Wait(self) -> None:
        """Raise: a simulated rank waits outside its execution."""
        raise NotImplementedError("a simulated rank waits outside its execution")


class NetworkModel(Protocol):
    """The times of messages and additions."""

    def transfer(self, messages: Sequence[Message], now: float) -> list[tuple[float, Message]]:
        """Start messages at time `now`, first come first served.

        Set `done` of those that start; return the others with the time at which they may start.
        """

    def add(self, rank: int, elements: int) -> float:
        """Return the seconds in which `rank` adds `elements` elements."""


def simulate(schedule: Schedule, in_flight: InFlight, network: NetworkModel) -> float:
    """Return the time at which the last rank has finished, in seconds. Raise ScheduleError where ranks wait forever."""
    return _Simulation(schedule, in_flight, network).run()


class Lengths:
    """Stands for an array of which only lengths matter: a slice of it is its length."""

    def __init__(self, dtype: np.dtype = BYTES) -> None:
        self.dtype = dtype

    def __getitem__(self, part: slice) -> int:
        return int(part.stop - part.start)


class Slots:
    """Stands for scratch memory in the same way."""

    def __getitem__(self, part: tuple[int, slice]) -> int:
        return int(part[1].stop)


class _SimulatedRank(HostTransport):
    """A rank's clock and execution; it is also the execution's communicator and transport."""

    def __init__(self, world: _Simulation, rank: int):
        self.world, self.rank, self.clock = world, rank, 0.0
        self.awaited: Message | None = None
        self.ended = False
        self._messages = 0
        self._run: Iterator[Awaited] = iter(())

    def begin_steps(self, schedule: Schedule, in_flight: InFlight) -> None:
        """Run the execution until it waits."""
        array = Lengths()
        op = OPERATIONS["sum"] if schedule.verb.joins else None
        self._run = Execution(schedule, self, op, array, array, self, in_flight).run()  # type: ignore[arg-type]
        self.advance()

    def advance(self) -> None:
        """Run the execution until it waits for a message whose arrival is unknown."""
        for message in self._run:
            assert isinstance(message, Message)
            if message.done is None:
                self.awaited = message
                return
            self.clock = max(self.clock, message.done)
        self.ended = True

    def woken(self, message: Message) -> None:
        """Continue if this is the message that the rank waits for."""
        if self.awaited is message:
            assert message.done is not None
            self.awaited, self.clock = None, max(self.clock, message.done)
            self.advance()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Return scratch memory without data."""
        return Slots()

    def message(self, view: Any, sent: bool) -> Any:
        """Return the message's number on this rank, and its length."""
        self._messages += 1
        return self._messages, view

    def send(self, comm: Any, message: Any, peer: int, tag: int, synchronous: bool) -> Any:
        """Begin a send."""
        return self.world.send(self, message, peer, tag)

    def receive(self, comm: Any, message: Any, peer: int, tag: int) -> Any:
        """Post a receive."""
        return self.world.receive(self, message, peer, tag)

    def copy(self, target: Any, source: Any) -> None:
        """Do nothing: copies take no time."""

    def join(self, op: Operation, target: Any, source: Any, arrived: Any) -> None:
        """Advance the clock by an addition."""
        self.clock += self.world.network.add(self.rank, arrived)


class _Simulation:
    """All ranks and the messages in flight."""

    def __init__(self, schedule: Schedule, in_flight: InFlight, network: NetworkModel):
        self.network = network
        self._schedule, self._in_flight = schedule, in_flight
        self._ranks = [_SimulatedRank(self, rank) for rank in range(schedule.size)]
        self._halves: defaultdict[Channel, deque[Message]] = defaultdict(deque)  # messages with one end
        self._ready: list[tuple[float, float, tuple[int, int], int, Message]] = []  # by time, first come first served
        self._count = 0

    def run(self) -> float:
        """Process all events; return the latest clock."""
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
            raise ScheduleError(f"{stuck} ranks wait forever")
        return max(rank.clock for rank in self._ranks)

    def send(self, rank: _SimulatedRank, sent: tuple[int, int], peer: int, tag: int) -> Message:
        """Return the message of a send."""
        message = self._half("sent", (rank.rank, peer, tag), sent[1])
        message.sender, message.sent, message.turns = rank, rank.clock, (sent[0], message.turns[1])
        self._pair(message)
        return message

    def receive(self, rank: _SimulatedRank, received: tuple[int, int], peer: int, tag: int) -> Message:
        """Return the message of a receive."""
        message = self._half("posted", (peer, rank.rank, tag), received[1])
        message.posted, message.turns = rank.clock, (message.turns[0], received[0])
        self._pair(message)
        return message

    def _half(self, end: str, channel: Channel, elements: int) -> Message:
        """Return the first message on the channel without this `end`."""
        halves = self._halves[channel]
        if halves and getattr(halves[0], end) is None:
            return halves.popleft()
        halves.append(Message(channel[0], channel[1], elements))
        return halves[-1]

    def _pair(self, message: Message) -> None:
        """Queue the message if both ends have begun."""
        if message.sent is not None and message.posted is not None:
            message.ready = max(message.sent, message.posted)
            self._queue(message.ready, message)

    def _queue(self, time: float, message: Message) -> None:
        """Queue the message for `time`."""
        self._count += 1
        heapq.heappush(self._ready, (time, message.ready, message.turns, self._count, message))
