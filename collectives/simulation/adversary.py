"""Adversary: a network that delivers messages as unfavourably as MPI allows, for all ranks in one process.

It guarantees what MPI guarantees and no more:

- a send may continue until its receive is posted, and reads its elements when the message is delivered;
- messages of different ranks or tags pass each other;
- `Test` may report completion late.

A delivery order (LazyDelivery and its subclasses) decides when messages are delivered and when ranks learn of it.

A rank is a generator that yields the requests it waits for, as `Execution.run` and a plan's `steps` do. Errors are: to
write what is being sent, to leave a request behind, to wait inside a call, to exceed the limits of `InFlight`.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from collectives.errors import ScheduleError
from collectives.execution.execute import InFlight
from collectives.execution.transport import Awaited

Channel = tuple[int, int, Hashable]  # source, destination, tag
Halves: TypeAlias = "deque[tuple[SimulatedRequest, np.ndarray]]"  # ends of messages, with their elements


class LazyDelivery:
    """Deliver a message only when no rank can continue, the newest first; no test reports completion."""

    def moves(self) -> bool:
        """Return whether to deliver a message although a rank could continue."""
        return False

    def reports(self) -> bool:
        """Return whether a test reports completion."""
        return False

    def buffers(self) -> bool:
        """Return whether a send that is not synchronous is complete at once."""
        return False

    def pick(self, count: int) -> int:
        """Return which of `count` messages, or ranks, is next."""
        return count - 1


class EagerDelivery(LazyDelivery):
    """Deliver every message as soon as possible, the oldest first; every test reports completion."""

    def moves(self) -> bool:
        """Return True."""
        return True

    def reports(self) -> bool:
        """Return True."""
        return True

    def buffers(self) -> bool:
        """Return True."""
        return True

    def pick(self, count: int) -> int:
        """Return the oldest."""
        return 0


class RandomDelivery(LazyDelivery):
    """Decide everything at random, from a seed."""

    def __init__(self, seed: int):
        self._draw = random.Random(seed)

    def moves(self) -> bool:
        """Return True in 3 of 10 cases."""
        return self._draw.random() < 0.3

    def reports(self) -> bool:
        """Return True in half of the cases."""
        return self._draw.random() < 0.5

    def buffers(self) -> bool:
        """Return True in half of the cases."""
        return self._draw.random() < 0.5

    def pick(self, count: int) -> int:
        """Return any."""
        return self._draw.randrange(count)


class SimulatedRequest:
    """One rank's end of a message, or its part of a collective, with the methods of an MPI request."""

    def __init__(self, network: Network, rank: int, channel: Channel | None, sent: np.ndarray | None = None):
        self.network, self.rank, self._channel = network, rank, channel
        self.complete = self.known = False
        self._sent, self._given = sent, None if sent is None else sent.copy()

    @property
    def waits_for(self) -> str:
        """Return what must happen before it is complete, in words."""
        if self._channel is None:
            return "for all to come to a collective"
        source, dest, tag = self._channel
        return f"for rank {source} to send tag {tag}" if self._sent is None else f"for rank {dest} to receive tag {tag}"

    def Test(self) -> bool:
        """Return whether the rank knows that it is complete."""
        if self.complete and self.network.order.reports():
            self.learn()
        return self.known

    def Wait(self) -> None:
        """Block until it is complete."""
        if not self.complete:
            self.network.block(self)
        self.learn()

    def learn(self) -> None:
        """Report the completed end to the rank. Raise ScheduleError if it wrote to what it was sending."""
        if self.known:
            return
        self.known = True
        self.network.under_way[self.rank][self._sent is not None] -= 1
        if self._sent is not None and (self._sent != self._given).any():
            raise ScheduleError(f"rank {self.rank} wrote to what it was sending, and waited {self.waits_for}")


class Network:
    """Delivers messages between the ranks that `run` advances, in a delivery order.

    `most` holds the largest numbers of receives and of sends that any rank had in flight.
    """

    def __init__(self, size: int, order: LazyDelivery, in_flight: InFlight | None = None):
        """Begin with nothing in flight; `in_flight` sets the limits of each rank."""
        self.size, self.order, self.in_flight = size, order, in_flight
        self.under_way = [[0, 0] for _ in range(size)]  # receives and sends of each rank
        self.most = [0, 0]  # receives and sends that any rank had in flight at a time
        self._sends: defaultdict[Channel, Halves] = defaultdict(deque)  # without a receive yet
        self._receives: defaultdict[Channel, Halves] = defaultdict(deque)
        self._movable: list[tuple[Callable[[], object], tuple[SimulatedRequest, ...]]] = []

    def comm(self, rank: int) -> SimulatedComm:
        """Return the communicator of a rank."""
        return SimulatedComm(self, rank)

    def send(self, channel: Channel, elements: np.ndarray, synchronous: bool) -> SimulatedRequest:
        """Begin a send."""
        end = self.begin(channel[0], channel, elements)
        buffered = not synchronous and self.order.buffers()
        if buffered:
            elements, end.complete = elements.copy(), True
        self._sends[channel].append((end, elements))
        self._match(channel)
        return end

    def receive(self, channel: Channel, elements: np.ndarray) -> SimulatedRequest:
        """Begin a receive."""
        end = self.begin(channel[1], channel)
        self._receives[channel].append((end, elements))
        self._match(channel)
        return end

    def begin(self, rank: int, channel: Channel | None = None, sent: np.ndarray | None = None) -> SimulatedRequest:
        """Return a new request of a rank; without a channel, of a collective. Raise ScheduleError beyond the limits."""
        under_way = self.under_way[rank]
        kind = int(sent is not None)
        under_way[kind] += 1
        self.most[kind] = max(self.most[kind], under_way[kind])
        if self.in_flight is not None and under_way[kind] > (self.in_flight.receives, self.in_flight.sends)[kind]:
            raise ScheduleError(f"rank {rank} has {under_way[0]} receives, {under_way[1]} sends in {self.in_flight}")
        return SimulatedRequest(self, rank, channel, sent)

    def block(self, end: SimulatedRequest) -> None:
        """Wait inside a call: an error here, since other ranks can't advance meanwhile."""
        raise ScheduleError(f"rank {end.rank} waits inside a call {end.waits_for}")

    def may_move(self, move: Callable[[], object], *ends: SimulatedRequest) -> None:
        """Schedule `move` for some later time; it completes the requests `ends`."""
        self._movable.append((move, ends))

    def run(self, ranks: Sequence[Iterator[Awaited]]) -> None:
        """Run all ranks to their ends. Raise ScheduleError where they wait forever, or leave a request."""
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
            raise ScheduleError(f"{len(awaited)} ranks wait forever: {waits}")

    def _go_on(self, rank: int, ranks: Sequence[Iterator[Awaited]], awaited: dict[int, SimulatedRequest]) -> None:
        """Run a rank until it has to wait."""
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
        """Deliver a message with both ends posted, at some later time."""
        sends, receives = self._sends[channel], self._receives[channel]
        if sends and receives:
            (sent, elements), (received, room) = sends.popleft(), receives.popleft()
            if elements.shape != room.shape:
                raise ScheduleError(f"{channel}: {elements.shape} sent where {room.shape} are received")
            self.may_move(lambda: np.copyto(room, elements), sent, received)


class SimulatedComm:
    """One rank's communicator on a network, with the methods that executions use."""

    def __init__(self, network: Network, rank: int):
        self.network, self.rank, self.size = network, rank, network.size

    def Isend(self, message: Sequence[Any], dest: int, tag: int) -> SimulatedRequest:
        """Send; the message may be buffered."""
        return self.network.send(self._channel(self.rank, dest, tag), message[0], synchronous=False)

    def Issend(self, message: Sequence[Any], dest: int, tag: int) -> SimulatedRequest:
        """Send; complete only when the message is delivered."""
        return self.network.send(self._channel(self.rank, dest, tag), message[0], synchronous=True)

    def Irecv(self, message: Sequence[Any], source: int, tag: int) -> SimulatedRequest:
        """Receive."""
        return self.network.receive(self._channel(source, self.rank, tag), message[0])

    def _channel(self, source: int, dest: int, tag: int) -> Channel:
        """Return the channel of a message."""
        return source, dest, tag
