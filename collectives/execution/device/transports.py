"""Transports of device arrays: MPI takes chunks where they lie, or pinned slots of host memory.

Only `Wait` waits. Work of the device is awaited by its events, which are polled as requests are. A run begins after
the work that was on the caller's stream at `mark`, and the caller's stream in turn waits for the end of the run.

**Direct**, where MPI takes device pointers. One stream copies and joins. A send begins when the work put on the stream
before it is done. A join in the background counts among the execution's steps in flight, so that no receive is posted
into what it reads.

**Staged**, elsewhere. Stream `up` copies received chunks to the device and joins them, in the order of the steps.
Stream `down` copies chunks to be sent, each after the work that was on `up` before it. So copies in both directions,
messages and joins of different chunks overlap. Chunks pass through SLOTS pinned slots in each direction, in turn:

- a chunk is sent when its copy down is done;
- a slot is filled again when its send is done;
- a slot is received into again when its copy up is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from collectives.errors import RankLostError
from collectives.execution.device.device import Device, Event
from collectives.execution.execute import AHEAD
from collectives.execution.operations import Operation
from collectives.execution.transport import Awaited, message_type

if TYPE_CHECKING:
    from mpi4py import MPI

SLOTS = AHEAD + 2  # in each direction: posted receives, one that lands, and one that is copied


class DeferredRequest:
    """A send or receive that begins when an event is complete, after those before it in its queue.

    Events complete without other ranks, messages may not. So `Wait` first begins everything in the execution's queues;
    otherwise two ranks could each wait for a message that the other has not begun to send.
    """

    def __init__(self, queues: Queues, event: Event, begin: Callable[[], Awaited], sent: bool):
        """Queue `begin`, which starts the message after `event`."""
        self.queues, self.event, self.begin = queues, event, begin
        self.request: Awaited | None = None
        queues[int(sent)].append(self)
        go_on(queues)

    def Test(self) -> bool:
        """Return whether the message is complete."""
        go_on(self.queues)
        return self.request is not None and bool(self.request.Test())

    def Wait(self) -> None:
        """Wait until the message is complete. Raise RankLostError for one that a lost rank has kept from beginning."""
        while any(self.queues):
            go_on(self.queues)
        if self.request is None:
            raise RankLostError("a rank was lost before the message was begun")
        self.request.Wait()


Queues: TypeAlias = tuple[deque[DeferredRequest], deque[DeferredRequest]]  # receives, sends


def go_on(queues: Queues) -> None:
    """Begin every message whose turn has come and whose event is complete."""
    for queue in queues:
        while queue and queue[0].event.Test():
            late = queue.popleft()
            late.request = late.begin()


class DeviceTransport:
    """The common part of direct and staged transports: stream `up`, on which data is copied and joined."""

    in_flight = 64  # steps in the background
    place = -1

    def __init__(self, device: Device):
        self.device, self.up = device, device.stream()
        self._late: Queues = deque(), deque()
        self._given, self._last, self._nothing = device.event(), device.event(), device.event()

    def prepare(self, nbytes: int) -> None:
        """Wait for the last run, whose memory may now be used for something else."""
        self._last.Wait()  # the last run's memory may be reused now

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Return an uninitialized device array."""
        return self.device.empty(shape, dtype)

    def mark(self) -> None:
        """Record the caller's stream."""
        self._given.record(self.device.current())

    def begin(self) -> Awaited | None:
        """Make stream `up` wait for the mark."""
        self.up.wait_event(self._given)
        return None

    def land(self, message: Any) -> None:
        """Bring a received message to its elements."""
        raise NotImplementedError

    def join(self, op: Operation, target: Any, source: Any, arrived: Any) -> Awaited | None:
        """Join on stream `up`."""
        raise NotImplementedError

    def land_joined(self, op: Operation, message: Any, target: Any, source: Any, arrived: Any) -> Awaited | None:
        """Land a message; join on stream `up`."""
        self.land(message)
        return self.join(op, target, source, arrived)

    def divide(self, values: Any, ranks: int) -> None:
        """Divide on stream `up`."""
        self.device.divide(values, ranks, self.up)

    def end(self) -> None:
        """Record the end of the run."""
        self._last.record(self.up)

    def follow(self) -> None:
        """Make the caller's stream wait for the end of the run."""
        self.device.current().wait_event(self._last)

    def free(self) -> None:
        """Wait for the last run."""
        self._last.Wait()

    def break_off(self) -> None:
        """Begin no message that waits for the device: their communicators are revoked."""
        for queue in self._late:
            queue.clear()


class DirectChunk(NamedTuple):
    """A chunk of the device as MPI takes it, and the event of the last read of what arrived there."""

    buffer: list[Any]
    copied: Event


class DirectTransport(DeviceTransport):
    """Transport for an MPI library that takes device pointers."""

    def __init__(self, device: Device):
        super().__init__(device)
        self._marks = [device.event() for _ in range(self.in_flight)]
        self._marked, self._begun = 0, device.event()
        self._mark = self._marks[0]  # after the last copy or join

    def message(self, view: Any, sent: bool) -> DirectChunk:
        """Return the device array and its MPI datatype."""
        buffer = view.view(np.int16) if view.dtype == np.float16 else view
        return DirectChunk([buffer, message_type(view.dtype)], self._nothing)

    def begin(self) -> Awaited:
        """Begin when the caller's work and the last run are done."""
        super().begin()
        self._begun.record(self.up)  # also waits for the last run, which may still join what it received
        return self._begun  # MPI does not wait for streams

    def send(
        self, comm: MPI.Intracomm, message: DirectChunk, peer: int, tag: int, synchronous: bool
    ) -> DeferredRequest:
        """Send after the last copy or join."""
        send = comm.Issend if synchronous else comm.Isend
        return DeferredRequest(self._late, self._mark, lambda: send(message.buffer, peer, tag), sent=True)

    def receive(self, comm: MPI.Intracomm, message: DirectChunk, peer: int, tag: int) -> Awaited:
        """Post a receive, once what arrived there before is read."""
        return DeferredRequest(self._late, message.copied, lambda: comm.Irecv(message.buffer, peer, tag), sent=False)

    def land(self, message: DirectChunk) -> None:
        """Do nothing: MPI receives into the device array."""

    def copy(self, target: Any, source: Any) -> Awaited:
        """Copy on stream `up`."""
        self.device.copy(target, source, self.up)
        return self.written()

    def join(self, op: Operation, target: Any, source: Any, arrived: Any) -> Awaited:
        """Join on stream `up`."""
        self.device.join(op, target, source, arrived, self.up)
        return self.written()

    def written(self) -> Event:
        """Return an event for the work put on the stream last; at most `in_flight` are in use."""
        self._marked += 1
        self._mark = self._marks[self._marked % self.in_flight]
        self._mark.record(self.up)
        return self._mark


class PinnedChunk(NamedTuple):
    """A chunk of the device, the pinned bytes that it passes through, and the event of the slot's last copy."""

    view: Any
    pinned: np.ndarray
    copied: Event


class StagedTransport(DeviceTransport):
    """Transport through pinned slots, for an MPI library that takes host memory only."""

    in_flight = SLOTS

    def __init__(self, device: Device):
        super().__init__(device)
        self.down = device.stream()
        self._before = device.event()
        self._pinned = np.empty((2, SLOTS, 0), np.uint8)
        self._copied = [[device.event() for _ in range(SLOTS)] for _ in range(2)]
        self._turn = [0, 0]

    def prepare(self, nbytes: int) -> None:
        """Make slots of `nbytes` bytes, if the present ones are shorter."""
        super().prepare(nbytes)
        self._turn = [0, 0]
        if self._pinned.shape[-1] < nbytes:
            self._pinned = self.device.pinned(2 * SLOTS * nbytes).reshape(2, SLOTS, nbytes)

    def message(self, view: Any, sent: bool) -> PinnedChunk:
        """Return the chunk with the next slot of its direction."""
        slot = self._turn[sent] % SLOTS
        self._turn[sent] += 1
        return PinnedChunk(view, self._pinned[int(sent), slot, : view.nbytes], self._copied[sent][slot])

    def send(
        self, comm: MPI.Intracomm, message: PinnedChunk, peer: int, tag: int, synchronous: bool
    ) -> DeferredRequest:
        """Copy the chunk to its slot; send it from there."""
        send = comm.Issend if synchronous else comm.Isend
        self._before.record(self.up)
        self.down.wait_event(self._before)
        self.device.copy(message.pinned, message.view, self.down)
        message.copied.record(self.down)
        return DeferredRequest(self._late, message.copied, lambda: send(message.pinned, peer, tag), sent=True)

    def written(self) -> None:
        """Do nothing: what is put on stream `up` precedes the copies of `down`."""

    def receive(self, comm: MPI.Intracomm, message: PinnedChunk, peer: int, tag: int) -> DeferredRequest:
        """Post a receive into the slot, once the slot is free."""
        return DeferredRequest(self._late, message.copied, lambda: comm.Irecv(message.pinned, peer, tag), sent=False)

    def land(self, message: PinnedChunk) -> None:
        """Copy the slot to the device."""
        self.device.copy(message.view, message.pinned, self.up)
        message.copied.record(self.up)

    def copy(self, target: Any, source: Any) -> None:
        """Copy on stream `up`."""
        self.device.copy(target, source, self.up)

    def join(self, op: Operation, target: Any, source: Any, arrived: Any) -> None:
        """Join on stream `up`."""
        self.device.join(op, target, source, arrived, self.up)
