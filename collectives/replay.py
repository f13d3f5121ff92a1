"""Replay: go through all ranks' steps as an executor does, with a network that is only described.

`collectives.check` replays with data and no time, `collectives.model` with time and no data, so that both speak of
the same executor: it takes its steps in order, has at most `Window.receives` receives posted and not yet taken and
`Window.sends` sends not yet finished, and every send waits until its receive is posted (rendezvous).

Each rank waits for one certain message at a time and never picks among several, so what happens does not depend on
the order in which ranks are looked at: where one replay comes to an end, all runs do.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from collectives.errors import ScheduleError
from collectives.schedule import Op, Schedule, Step

SAME = 1 + 1e-12  # times that differ by less are one time, computed in two ways
Channel = tuple[int, int, int]  # source, destination, tag


@dataclass(frozen=True)
class Window:
    """How many receives an executor posts ahead and how many sends it leaves unfinished."""

    receives: int = 4
    sends: int = 4


@dataclass(slots=True)
class Message:
    """A send and its receive: when each was started, when both were, and when the message has arrived."""

    source: int
    dest: int
    elements: int
    sent: float | None = None
    posted: float | None = None
    ready: float = 0.0
    done: float | None = None
    turns: tuple[int, int] = 0, 0  # the numbers of the send and the receive among their ranks' steps
    data: Any = None


class Network(Protocol):
    """What messages and additions cost."""

    def transfer(self, messages: Sequence[Message], now: float) -> list[tuple[float, Message]]:
        """Start messages, first come first, at the time `now`: set `done`, or return those that must wait till when."""

    def add(self, rank: int, elements: int) -> float:
        """Return the seconds that `rank` takes to add `elements`."""


class Memory(Protocol):
    """What becomes of data."""

    def send(self, rank: int, step: Step) -> Any: ...

    def take(self, rank: int, step: Step, data: Any) -> None: ...


class Instant:
    """A network on which everything takes no time."""

    def transfer(self, messages: Sequence[Message], now: float) -> list[tuple[float, Message]]:
        for message in messages:
            message.done = now
        return []

    def add(self, rank: int, elements: int) -> float:
        return 0.0


class Nowhere:
    """A memory that forgets."""

    def send(self, rank: int, step: Step) -> Any:
        return None

    def take(self, rank: int, step: Step, data: Any) -> None:
        pass


@dataclass(slots=True)
class _Rank:
    """Where one rank is in its steps."""

    number: int
    steps: list[Step]
    receives: list[int]  # the numbers of the steps that receive
    clock: float = 0.0
    at: int = 0
    posted: int = 0  # how many receives have been posted
    taken: int = 0
    sends: deque[tuple[int, Message]] = field(default_factory=deque)
    messages: dict[int, Message] = field(default_factory=dict)  # posted and not yet taken, by step
    awaited: Message | None = None


def replay(
    schedule: Schedule,
    window: Window,
    network: Network | None = None,
    memory: Memory | None = None,
    tests_sends: bool = True,
) -> float:
    """Return the time at which the last rank has finished; ScheduleError where ranks wait for ever.

    An executor that `tests_sends` posts a receive as soon as the sends in its way have finished; one that does not
    finds out about a send when it must wait for it. Less is posted then, so what ends without testing ends with it.
    """
    return _Replay(schedule, window, network or Instant(), memory or Nowhere(), tests_sends).run()


class _Replay:
    def __init__(self, schedule: Schedule, window: Window, network: Network, memory: Memory, tests_sends: bool):
        self._window, self._network, self._memory, self._tests_sends = window, network, memory, tests_sends
        self._ranks = [_start(rank, schedule.rank(rank)) for rank in range(schedule.size)]
        self._halves: defaultdict[Channel, deque[Message]] = defaultdict(deque)  # sends or receives without the other
        self._ready: list[tuple[float, float, tuple[int, int], int, Message]] = []  # by time, first come first
        self._count = 0

    def run(self) -> float:
        for rank in self._ranks:
            self._advance(rank)
        while self._ready:
            now = self._ready[0][0]
            together = []
            while self._ready and self._ready[0][0] <= now * SAME:
                together.append(heapq.heappop(self._ready)[-1])
            for time, message in self._network.transfer(together, now):
                self._queue(time, message)
            for message in together:
                if message.done is not None:
                    self._wake(message)
        stuck = [rank for rank in self._ranks if rank.at < len(rank.steps) or rank.sends]
        if stuck:
            raise ScheduleError(_deadlock(stuck))
        return max(rank.clock for rank in self._ranks)

    def _wake(self, message: Message) -> None:
        for number in (message.source, message.dest):
            rank = self._ranks[number]
            if rank.awaited is message:
                rank.awaited = None
                self._advance(rank)

    def _advance(self, rank: _Rank) -> None:
        """Take steps until one has to wait; in the end, wait for all sends."""
        while rank.at < len(rank.steps):
            self._post(rank)
            if not self._take(rank, rank.steps[rank.at]):
                return
            rank.at += 1
        self._finish_sends(rank, len(rank.steps))

    def _take(self, rank: _Rank, step: Step) -> bool:
        """Take the next step and return True, or note what it waits for."""
        if not self._finish_sends(rank, step.after):
            return False
        if step.op is Op.SEND:
            if len(rank.sends) >= self._window.sends and not self._finish_sends(rank, rank.sends[0][0]):
                return False
            message = self._send(rank, step)
            message.data = self._memory.send(rank.number, step)
            rank.sends.append((rank.at, message))
        elif step.op is Op.COPY:
            self._memory.take(rank.number, step, None)
        else:
            self._post(rank)
            message = rank.messages[rank.at]
            if not self._wait(rank, message):
                return False
            del rank.messages[rank.at]
            rank.taken += 1
            self._memory.take(rank.number, step, message.data)
            if step.op is Op.RECV_ADD:
                rank.clock += self._network.add(rank.number, step.stop - step.start)
        return True

    def _finish_sends(self, rank: _Rank, last: int) -> bool:
        """Wait for the sends up to step number `last`; False if one is unfinished."""
        while rank.sends and rank.sends[0][0] <= last:
            if not self._wait(rank, rank.sends[0][1]):
                return False
            rank.sends.popleft()
        return True

    def _wait(self, rank: _Rank, message: Message) -> bool:
        if message.done is None:
            rank.awaited = message
            return False
        rank.clock = max(rank.clock, message.done)
        return True

    def _post(self, rank: _Rank) -> None:
        """Post receives ahead, in order, as far as the window goes and nothing in use would be overwritten."""
        while rank.posted < len(rank.receives) and rank.posted - rank.taken < self._window.receives:
            number = rank.receives[rank.posted]
            after = rank.steps[number].after
            if after >= rank.at or self._in_flight(rank, after):
                return
            rank.messages[number] = self._receive(rank, number)
            rank.posted += 1

    def _in_flight(self, rank: _Rank, last: int) -> bool:
        """Say whether a send up to step number `last` may not have finished, as far as the executor knows."""
        while self._tests_sends and rank.sends:
            done = rank.sends[0][1].done
            if done is None or done > rank.clock:
                break
            rank.sends.popleft()
        return bool(rank.sends) and rank.sends[0][0] <= last

    def _send(self, rank: _Rank, step: Step) -> Message:
        message = self._half("sent", (rank.number, step.peer, step.tag), step)
        message.sent, message.turns = rank.clock, (rank.at, message.turns[1])
        self._pair(message)
        return message

    def _receive(self, rank: _Rank, number: int) -> Message:
        step = rank.steps[number]
        message = self._half("posted", (step.peer, rank.number, step.tag), step)
        message.posted, message.turns = rank.clock, (message.turns[0], number)
        self._pair(message)
        return message

    def _half(self, end: str, channel: Channel, step: Step) -> Message:
        """Return the first message on the channel that has no such `end` yet."""
        halves = self._halves[channel]
        if halves and getattr(halves[0], end) is None:
            return halves.popleft()
        halves.append(Message(channel[0], channel[1], step.stop - step.start))
        return halves[-1]

    def _pair(self, message: Message) -> None:
        if message.sent is not None and message.posted is not None:
            message.ready = max(message.sent, message.posted)
            self._queue(message.ready, message)

    def _queue(self, time: float, message: Message) -> None:
        self._count += 1
        heapq.heappush(self._ready, (time, message.ready, message.turns, self._count, message))


def _start(number: int, steps: list[Step]) -> _Rank:
    return _Rank(number, steps, [i for i, step in enumerate(steps) if step.op in (Op.RECV, Op.RECV_ADD)])


def _deadlock(stuck: list[_Rank]) -> str:
    """Name some of the ranks that wait, and for what."""
    lines = []
    for rank in stuck[:4]:
        step = rank.steps[rank.at] if rank.at < len(rank.steps) else None
        lines.append(f"rank {rank.number} at step {rank.at} ({step or 'the end, a send unfinished'})")
    return f"{len(stuck)} ranks wait for ever: {'; '.join(lines)}"
