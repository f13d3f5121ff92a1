"""Ranks in virtual time: each runs its own code as a process, and exchanges messages over a described network.

The code may be any that uses `SimulatedCommunicator`: plans, staged collectives and their executions are the same as
over MPI. Only the requests, the network and the clock are simulated. Compute is `spend`.
"""

from __future__ import annotations

import gc
import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import numpy as np

from collectives.simulation.events import SAME, Message, NetworkModel
from collectives.simulation.virtual_time import Process, Scheduler

Channel = tuple[Hashable, int, int, int]  # communicator, source, destination, tag


class SimulatedRank:
    """A rank's clock, in seconds, and its process.

    The clock may be ahead of the scheduler's time: a rank computes, and adds, without a pause, and its messages carry
    the time of its clock. `catch_up` ends that, before it changes what its background work reads.

    `background`, if set, is called at each event of the rank's messages: it advances them in the time of a thread of
    its own, beside the process.
    """

    def __init__(self, world: SimulatedRanks, number: int):
        self.world, self.number, self.clock = world, number, 0.0
        self.background: Callable[[], object] | None = None
        self._background_clock = self._due = 0.0
        self.meetings = 0  # in which it has taken part
        self._process: Process | None = None
        self._awaits: Callable[[], bool] | None = None  # what the process waits for

    def now(self) -> float:
        """Return the time of the clock."""
        return self.clock

    def begin(self, work: Callable[[], object]) -> None:
        """Begin to run `work` as the rank's process."""
        self._process = self.world.scheduler.start(work)

    def spend(self, seconds: float) -> None:
        """Advance the clock."""
        self.clock += seconds

    def catch_up(self) -> None:
        """Return once all events up to the clock's time have been processed."""
        if self.clock > self.world.scheduler.now:
            self._pause_until(lambda: False, self.clock)

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """Return once a message's event has made `is_done()` true."""
        if not is_done():
            self._pause_until(is_done)

    def wait_for_event(self) -> None:
        """Return at the next event of this rank's messages."""
        self._pause_until(lambda: True)

    def _pause_until(self, is_done: Callable[[], bool], at: float | None = None) -> None:
        """Pause until an event finds `is_done()` true, or until a time."""
        assert self._process is not None
        if at is not None:
            self.world.scheduler.at(at, self._process.resume)
        else:
            self._awaits = is_done
        self._process.pause()
        self.clock = max(self.clock, self.world.scheduler.now)

    def wake(self) -> None:
        """Let the background work see what the process has changed by now."""
        self.world.scheduler.at(self.clock, self.notify)

    def notify(self) -> None:
        """Take note of an event of this rank's messages, at the scheduler's time."""
        now = self.world.scheduler.now
        if self.background is not None:
            now = self._run_background(now)
        if self._awaits is None:
            return
        before, self.clock = self.clock, max(self.clock, now)
        if self._awaits():
            self._awaits = None
            assert self._process is not None
            self._process.resume()
        else:
            self.clock = before

    def _run_background(self, now: float) -> float:
        """Call the background work, now or when its thread is free; return the time at which it is."""
        if self._background_clock > now * SAME:
            if self._due < self._background_clock:
                self._due = self._background_clock
                self.world.scheduler.at(self._due, self.notify)
            return self._background_clock
        own, self.clock = self.clock, now
        assert self.background is not None
        self.background()
        self._background_clock, self.clock = self.clock, own
        return self._background_clock

    def join_background(self) -> None:
        """End the background work; the process goes on when both are free."""
        self.background = None
        self.clock = max(self.clock, self._background_clock)


class End:
    """One rank's end of a message: a request."""

    __slots__ = ("is_awaited", "message", "rank")

    def __init__(self, message: Message, rank: SimulatedRank):
        self.message, self.rank, self.is_awaited = message, rank, False

    def Test(self) -> bool:
        """Return whether the message has arrived by the rank's clock; if not, the rank gets an event when it does."""
        done = self.message.done
        if done is not None and done <= self.rank.clock * SAME:
            return True
        self.is_awaited = True
        return False

    def Wait(self) -> None:
        """Return once it has arrived."""
        self.rank.wait_until(self.Test)


class Meeting:
    """A small allreduce: how many ranks have come, the last of them when, and when it ends."""

    def __init__(self) -> None:
        self.count, self.last, self.sums = 0, 0.0, np.zeros(1)
        self.end: float | None = None


class SimulatedRanks:
    """`size` ranks on a network, and the messages between them."""

    def __init__(self, size: int, network: NetworkModel):
        self.scheduler, self.network = Scheduler(), network
        self.ranks = [SimulatedRank(self, number) for number in range(size)]
        self._halves: defaultdict[Channel, deque[Message]] = defaultdict(deque)  # messages with one end
        self._ready: list[tuple[float, float, int, Message]] = []
        self._transfers: set[float] = set()  # times at which messages may start
        self._count = 0
        self._meetings: defaultdict[int, Meeting] = defaultdict(Meeting)

    def run(self, work: Callable[[SimulatedRank], object]) -> float:
        """Run `work(rank)` on every rank; return the latest clock, in seconds."""
        for rank in self.ranks:
            rank.begin(partial(work, rank))
        was_enabled = gc.isenabled()
        gc.disable()  # messages make no cycles, and the search for some takes a sixth of the time
        try:
            self.scheduler.run()
        finally:
            if was_enabled:
                gc.enable()
        return max(rank.clock for rank in self.ranks)

    def send(self, rank: SimulatedRank, channel: Channel, nbytes: int) -> End:
        """Begin a send of this many bytes."""
        message = self._half("sent", channel, nbytes)
        message.sent, end = rank.clock, End(message, rank)
        self._pair(message, end)
        return end

    def receive(self, rank: SimulatedRank, channel: Channel, nbytes: int) -> End:
        """Post a receive."""
        message = self._half("posted", channel, nbytes)
        message.posted, end = rank.clock, End(message, rank)
        self._pair(message, end)
        return end

    def _half(self, end: str, channel: Channel, nbytes: int) -> Message:
        """Return the first message on the channel without this `end`."""
        halves = self._halves[channel]
        if halves and getattr(halves[0], end) is None:
            return halves.popleft()
        halves.append(Message(channel[1], channel[2], nbytes))
        return halves[-1]

    def _pair(self, message: Message, end: End) -> None:
        """Queue the message if both ends have begun."""
        message.ends.append(end)
        if message.sent is not None and message.posted is not None:
            message.ready = max(message.sent, message.posted)
            self._queue(message.ready, message)

    def _queue(self, time: float, message: Message) -> None:
        """Let the message start at `time`, if its ports are free."""
        self._count += 1
        heapq.heappush(self._ready, (time, message.ready, self._count, message))
        if time not in self._transfers:
            self._transfers.add(time)
            self.scheduler.at(time, self._transfer, last=True)

    def _transfer(self) -> None:
        """Start the messages that are ready now, first come first served."""
        now, together = self.scheduler.now, []
        self._transfers.discard(now)
        while self._ready and self._ready[0][0] <= now * SAME:
            together.append(heapq.heappop(self._ready)[-1])
        for time, message in self.network.transfer(together, now) if together else ():
            self._queue(time, message)
        for message in together:
            if message.done is not None:
                self.scheduler.at(message.done, partial(self._arrive, message))

    def _arrive(self, message: Message) -> None:
        """Notify the ends that are awaited."""
        for end in message.ends:
            if end.is_awaited:
                end.rank.notify()
        message.ends.clear()  # which refer to the message

    def meet(self, rank: SimulatedRank, values: Sequence[float], seconds: float) -> np.ndarray:
        """Return the sums of the values over all ranks, `seconds` after the last one has come. Collective."""
        meeting, rank.meetings = self._meetings[rank.meetings], rank.meetings + 1
        meeting.sums = meeting.sums + np.array(values, np.float64)
        meeting.count, meeting.last = meeting.count + 1, max(meeting.last, rank.clock)
        if meeting.count < len(self.ranks):
            rank.wait_until(lambda: meeting.end is not None)
        else:
            meeting.end = meeting.last + seconds
            for other in self.ranks:
                self.scheduler.at(meeting.end, other.notify)
        assert meeting.end is not None
        rank.clock = max(rank.clock, meeting.end)
        return meeting.sums
