"""How an execution moves chunks of device arrays: where they lie, or through pinned slots of host memory.

Nothing here waits for the device as a whole, and nothing waits at all but `Wait`: work of the device is awaited by its
events, polled the way that requests are. The caller's stream is awaited up to where `mark` was called, and waits in
turn for the end of a run, without the host.

**Direct**, where MPI takes device pointers. One stream copies and joins. A send begins when what was put on the stream
before it is done; a join that goes on in the background counts among the execution's steps under way, so that no
receive is posted into what it reads.

**Staged**, elsewhere. Stream `up` copies what has arrived to the device and joins it, in the order of the steps;
stream `down` copies what is to be sent, each chunk after what was on `up` before it. So the copies of both directions,
the transfers and the joins of different chunks go on side by side. Chunks pass through SLOTS pinned slots in each
direction, in turn: the send of a chunk begins when its copy down is done, a slot is sent from again when that send is,
and received into again when its copy up is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from collectives.execution.device.device import Device, Event
from collectives.execution.execute import AHEAD
from collectives.execution.operations import Operation
from collectives.execution.transport import Request, message_type

if TYPE_CHECKING:
    from mpi4py import MPI

SLOTS = AHEAD + 2  # in each direction: receives that are posted, one that lands and one that is being copied


class DeferredRequest:
    """A send or receive that begins when an event is done, and after those that are before it in its queue.

    Events come to pass without other ranks, messages may not: so `Wait` first sees all begun that is in any queue of
    the execution, else two ranks could each wait for what the other has not begun to send.
    """

    def __init__(self, queues: Queues, event: Event, begin: Callable[[], Request], sent: bool):
        self.queues, self.event, self.begin = queues, event, begin
        self.request: Request | None = None
        queues[int(sent)].append(self)
        go_on(queues)

    def Test(self) -> bool:
        go_on(self.queues)
        return self.request is not None and bool(self.request.Test())

    def Wait(self) -> None:
        while any(self.queues):
            go_on(self.queues)
        assert self.request is not None
        self.request.Wait()


Queues: TypeAlias = tuple[deque[DeferredRequest], deque[DeferredRequest]]  # receives, sends


def go_on(queues: Queues) -> None:
    """Begin what can."""
    for queue in queues:
        while queue and queue[0].event.Test():
            late = queue.popleft()
            late.request = late.begin()


class DeviceTransport:
    """What direct and staged moves have in common: the stream `up` on which data is copied and joined."""

    in_flight = 64  # steps under way

    def __init__(self, device: Device):
        self.device, self.up = device, device.stream()
        self._late: Queues = deque(), deque()
        self._given, self._last, self._nothing = device.event(), device.event(), device.event()

    def prepare(self, nbytes: int) -> None:
        self._last.Wait()  # what the last run used may go to others now

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        return self.device.empty(shape, dtype)

    def mark(self) -> None:
        self._given.record(self.device.current())

    def begin(self) -> Request | None:
        self.up.wait_event(self._given)
        return None

    def divide(self, values: Any, ranks: int) -> None:
        self.device.divide(values, ranks, self.up)

    def end(self) -> None:
        self._last.record(self.up)

    def follow(self) -> None:
        self.device.current().wait_event(self._last)

    def free(self) -> None:
        self._last.Wait()


class DirectTransport(DeviceTransport):
    """Moves for an MPI library that takes device pointers."""

    def __init__(self, device: Device):
        super().__init__(device)
        self._marks = [device.event() for _ in range(self.in_flight)]
        self._marked, self._begun = 0, device.event()
        self._mark = self._marks[0]  # after the last copy or join

    def message(self, view: Any, sent: bool) -> list:
        return [view.view(np.int16) if view.dtype == np.float16 else view, message_type(view.dtype)]

    def begin(self) -> Request:
        super().begin()
        self._begun.record(self.up)  # also: the last run is over, which may still be joining what it received
        return self._begun  # MPI asks no stream before it reads and writes

    def send(self, comm: MPI.Intracomm, message: list, peer: int, tag: int, synchronous: bool) -> DeferredRequest:
        send = comm.Issend if synchronous else comm.Isend
        return DeferredRequest(self._late, self._mark, lambda: send(message, peer, tag), sent=True)

    def receive(self, comm: MPI.Intracomm, message: list, peer: int, tag: int) -> Request:
        return DeferredRequest(self._late, self._nothing, lambda: comm.Irecv(message, peer, tag), sent=False)

    def land(self, message: list) -> None:
        pass

    def copy(self, target: Any, source: Any) -> Request:
        self.device.copy(target, source, self.up)
        return self._marked_now()

    def join(self, op: Operation, target: Any, source: Any, arrived: Any) -> Request:
        self.device.join(op, target, source, arrived, self.up)
        return self._marked_now()

    def _marked_now(self) -> Event:
        """Return an event for what was put on the stream last; no more than `in_flight` are under way."""
        self._marked += 1
        self._mark = self._marks[self._marked % self.in_flight]
        self._mark.record(self.up)
        return self._mark


class PinnedChunk(NamedTuple):
    """Elements of the device, the pinned bytes through which they go, and the event of the slot's last copy."""

    view: Any
    pinned: np.ndarray
    copied: Event


class StagedTransport(DeviceTransport):
    """Moves through pinned slots, for an MPI library that knows host memory alone."""

    in_flight = SLOTS

    def __init__(self, device: Device):
        super().__init__(device)
        self.down = device.stream()
        self._before = device.event()
        self._pinned = np.empty((2, SLOTS, 0), np.uint8)
        self._copied = [[device.event() for _ in range(SLOTS)] for _ in range(2)]
        self._turn = [0, 0]

    def prepare(self, nbytes: int) -> None:
        super().prepare(nbytes)
        self._turn = [0, 0]
        if self._pinned.shape[-1] < nbytes:
            self._pinned = self.device.pinned(2 * SLOTS * nbytes).reshape(2, SLOTS, nbytes)

    def message(self, view: Any, sent: bool) -> PinnedChunk:
        slot = self._turn[sent] % SLOTS
        self._turn[sent] += 1
        return PinnedChunk(view, self._pinned[int(sent), slot, : view.nbytes], self._copied[sent][slot])

    def send(
        self, comm: MPI.Intracomm, message: PinnedChunk, peer: int, tag: int, synchronous: bool
    ) -> DeferredRequest:
        send = comm.Issend if synchronous else comm.Isend
        self._before.record(self.up)
        self.down.wait_event(self._before)
        self.device.copy(message.pinned, message.view, self.down)
        message.copied.record(self.down)
        return DeferredRequest(self._late, message.copied, lambda: send(message.pinned, peer, tag), sent=True)

    def receive(self, comm: MPI.Intracomm, message: PinnedChunk, peer: int, tag: int) -> DeferredRequest:
        return DeferredRequest(self._late, message.copied, lambda: comm.Irecv(message.pinned, peer, tag), sent=False)

    def land(self, message: PinnedChunk) -> None:
        self.device.copy(message.view, message.pinned, self.up)
        message.copied.record(self.up)

    def copy(self, target: Any, source: Any) -> None:
        self.device.copy(target, source, self.up)

    def join(self, op: Operation, target: Any, source: Any, arrived: Any) -> None:
        self.device.join(op, target, source, arrived, self.up)
