"""Adversary: a network on which messages move as unluckily as MPI allows, for all ranks in one process.

It keeps MPI's promises and no more. A send may go on until its receive is posted, and reads its elements when the
message moves; messages of different ranks or tags pass each other; `Test` may find out late. What an `Order` decides
is when messages move and what becomes known when.

A rank is a generator that yields the requests it has to wait for, as `Execution.run` and a plan's `steps` do. What a
rank must not do is an error: to write what is being sent, to leave a request behind, to wait inside a call, to have
more under way than its in_flight allows.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from collectives.errors import ScheduleError
from collectives.execution.execute import InFlight
from collectives.execution.transport import Request

Channel = tuple[int, int, Hashable]  # source, destination, tag


class LazyDelivery:
    """A message moves only when no rank can go on, the newest first, and no test finds out about one that has."""

    def moves(self) -> bool:
        """Say whether to move a message although a rank could go on."""
        return False

    def tells(self) -> bool:
        """Say whether a test finds out about what is complete."""
        return False

    def buffers(self) -> bool:
        """Say whether a send that need not tell of its arrival is complete at once."""
        return False

    def pick(self, count: int) -> int:
        """Return which of so many messages, or ranks, is the next one."""
        return count - 1


class EagerDelivery(LazyDelivery):
    """Every message moves as soon as it can, the oldest first, and every test finds out."""

    def moves(self) -> bool:
        return True

    def tells(self) -> bool:
        return True

    def buffers(self) -> bool:
        return True

    def pick(self, count: int) -> int:
        return 0


class RandomDelivery(LazyDelivery):
    """All is drawn."""

    def __init__(self, seed: int):
        self._draw = random.Random(seed)

    def moves(self) -> bool:
        return self._draw.random() < 0.3

    def tells(self) -> bool:
        return self._draw.random() < 0.5

    def buffers(self) -> bool:
        return self._draw.random() < 0.5

    def pick(self, count: int) -> int:
        return self._draw.randrange(count)


class SimulatedRequest:
    """One rank's end of a message, or its part of a collective: a request as MPI's."""

    def __init__(self, network: Network, rank: int, channel: Channel | None, sent: np.ndarray | None = None):
        self.network, self.rank, self._channel = network, rank, channel
        self.complete = self.known = False
        self._sent, self._given = sent, None if sent is None else sent.copy()

    @property
    def waits_for(self) -> str:
        """Say what has to happen before it is complete."""
        if self._channel is None:
            return "for all to come to a collective"
        source, dest, tag = self._channel
        return f"for rank {source} to send tag {tag}" if self._sent is None else f"for rank {dest} to receive tag {tag}"

    def Test(self) -> bool:
        if self.complete and self.network.order.tells():
            self.learn()
        return self.known

    def Wait(self) -> None:
        if not self.complete:
            self.network.block(self)
        self.learn()

    def learn(self) -> None:
        """Let the rank know that its end is complete."""
        if self.known:
            return
        self.known = True
        self.network.under_way[self.rank][self._sent is not None] -= 1
        if self._sent is not None and (self._sent != self._given).any():
            raise ScheduleError(f"rank {self.rank} wrote to what it was sending, and waited {self.waits_for}")


class Network:
    """Moves messages between the ranks that `run` goes on with, in an order."""

    def __init__(self, size: int, order: LazyDelivery, in_flight: InFlight | None = None):
        self.size, self.order, self.in_flight = size, order, in_flight
        self.under_way = [[0, 0] for _ in range(size)]  # of each rank: receives, sends
        self.most = [0, 0]  # receives, sends that any rank had under way at once
        self._sends: defaultdict[Channel, deque] = defaultdict(deque)  # that have no receive yet
        self._receives: defaultdict[Channel, deque] = defaultdict(deque)
        self._movable: list[tuple[Callable[[], object], tuple[SimulatedRequest, ...]]] = []

    def comm(self, rank: int) -> SimulatedComm:
        """Return what stands for a rank's communicator."""
        return SimulatedComm(self, rank)

    def send(self, channel: Channel, elements: np.ndarray, synchronous: bool) -> SimulatedRequest:
        end = self.begin(channel[0], channel, elements)
        buffered = not synchronous and self.order.buffers()
        if buffered:
            elements, end.complete = elements.copy(), True
        self._sends[channel].append((end, elements))
        self._match(channel)
        return end

    def receive(self, channel: Channel, elements: np.ndarray) -> SimulatedRequest:
        end = self.begin(channel[1], channel)
        self._receives[channel].append((end, elements))
        self._match(channel)
        return end

    def begin(self, rank: int, channel: Channel | None = None, sent: np.ndarray | None = None) -> SimulatedRequest:
        """Return a request of a rank's that is under way from now on; without a channel, of a collective."""
        under_way = self.under_way[rank]
        kind = int(sent is not None)
        under_way[kind] += 1
        self.most[kind] = max(self.most[kind], under_way[kind])
        if self.in_flight is not None and under_way[kind] > (self.in_flight.receives, self.in_flight.sends)[kind]:
            raise ScheduleError(f"rank {rank} has {under_way[0]} receives, {under_way[1]} sends in {self.in_flight}")
        return SimulatedRequest(self, rank, channel, sent)

    def block(self, end: SimulatedRequest) -> None:
        """Wait inside a call: an error, since the other ranks can't go on meanwhile."""
        raise ScheduleError(f"rank {end.rank} waits inside a call {end.waits_for}")

    def may_move(self, move: Callable[[], object], *ends: SimulatedRequest) -> None:
        """Let `move` be done some time, which completes the ends."""
        self._movable.append((move, ends))

    def run(self, ranks: Sequence[Iterator[Request]]) -> None:
        """Go on with all ranks to their ends. Raise ScheduleError where they wait for ever, or leave a request."""
        ready, awaited = list(range(len(ranks))), dict[int, SimulatedRequest]()
        while ready or self._movable:
            if self._movable and (not ready or self.order.moves()):
                move, ends = self._movable.pop(self.order.pick(len(self._movable)))
                move()
                for end in ends:
                    end.complete = True
                    if awaited.get(end.rank) is end:
                        ready.append(end.rank)
            else:
                self._go_on(ready.pop(self.order.pick(len(ready))), ranks, awaited)
        if awaited:
            waits = "; ".join(f"rank {rank} {end.waits_for}" for rank, end in sorted(awaited.items())[:4])
            raise ScheduleError(f"{len(awaited)} ranks wait for ever: {waits}")

    def _go_on(self, rank: int, ranks: Sequence[Iterator[Request]], awaited: dict[int, SimulatedRequest]) -> None:
        """Go on with a rank until it has to wait."""
        if rank in awaited:
            awaited.pop(rank).learn()
        for request in ranks[rank]:
            assert isinstance(request, SimulatedRequest)
            if not request.complete:
                awaited[rank] = request
                return
            request.learn()
        if any(self.under_way[rank]):
            raise ScheduleError(f"rank {rank} ends with receives and sends under way: {self.under_way[rank]}")

    def _match(self, channel: Channel) -> None:
        """Let a message move that has both ends."""
        sends, receives = self._sends[channel], self._receives[channel]
        if sends and receives:
            (sent, elements), (received, room) = sends.popleft(), receives.popleft()
            if elements.shape != room.shape:
                raise ScheduleError(f"{channel}: {elements.shape} sent where {room.shape} are received")
            self.may_move(lambda: np.copyto(room, elements), sent, received)


class SimulatedComm:
    """One rank's communicator on a network; only what executions use."""

    def __init__(self, network: Network, rank: int):
        self.network, self.rank, self.size = network, rank, network.size

    def Isend(self, message: Sequence[Any], dest: int, tag: int) -> SimulatedRequest:
        return self.network.send(self._channel(self.rank, dest, tag), message[0], synchronous=False)

    def Issend(self, message: Sequence[Any], dest: int, tag: int) -> SimulatedRequest:
        return self.network.send(self._channel(self.rank, dest, tag), message[0], synchronous=True)

    def Irecv(self, message: Sequence[Any], source: int, tag: int) -> SimulatedRequest:
        return self.network.receive(self._channel(source, self.rank, tag), message[0])

    def _channel(self, source: int, dest: int, tag: int) -> Channel:
        return source, dest, tag
