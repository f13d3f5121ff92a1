"""Messages of fewer bytes from devices: kernels encode into slots of device memory, from which a transport sends them.

The transport, direct or staged, moves bytes and does not know what they are. All kernels work on its stream `up`, in
the order of the steps; what arrives is decoded and joined in one pass. Slots are used in turn, as a staged transport
uses its pinned ones: one is written again when its send is done, and received into again when it is decoded. So a plan
needs the memory of a few chunks, and with feedback that of the elements whose rounding it keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from collectives.codecs import CODECS, FEEDBACK
from collectives.execution.device.transports import SLOTS, DeferredRequest, DirectTransport, StagedTransport
from collectives.execution.operations import Operation
from collectives.execution.transport import Awaited
from collectives.schedules.schedule import OUT

if TYPE_CHECKING:
    from mpi4py import MPI

BYTE, FLOAT = np.dtype(np.uint8), np.dtype(np.float32)


class CodedChunk:
    """A chunk's elements, and its bytes as the inner transport has them; what rounding has lost, or None."""

    def __init__(self, elements: Any, message: Any, chunk: Any, lost: Any, spreads: bool, given_back: Any):
        self.elements, self.bytes, self.chunk, self.lost, self.spreads = elements, message, chunk, lost, spreads
        self._give_back = given_back

    def give_lost(self, to: np.ndarray) -> None:
        """Add what rounding has lost so far to the elements of an array of the host, and keep it no longer."""
        if self.lost is not None:
            self._give_back(self.lost, to)


class DeviceCodecTransport:
    """Device memory whose messages a codec's kernels write, over `inner`, which moves them.

    `spreads`: sums are spread, so their first rank rounds them too.
    """

    in_flight = SLOTS
    place = OUT  # of the next message's elements

    def __init__(self, inner: DirectTransport | StagedTransport, numbers: str, spreads: bool):
        self.inner, self.device, self.up = inner, inner.device, inner.up
        self.name = numbers.removesuffix(FEEDBACK)
        self.codec, self._keeps, self._spreads = CODECS[self.name](), FEEDBACK in numbers, spreads
        self._slots: list[list[Any]] = [[], []]  # of received and of sent messages
        self._free = [[self.device.event() for _ in range(SLOTS)] for _ in range(2)]
        self._turn = [0, 0]

    def prepare(self, nbytes: int) -> None:
        """Make slots for messages of so many bytes of elements, if the present ones are shorter."""
        coded = self.codec.nbytes(nbytes // FLOAT.itemsize)
        self.inner.prepare(coded)
        self._turn = [0, 0]
        if not self._slots[0] or self._slots[0][0].size < coded:
            self._slots = [[self.device.empty((coded,), BYTE) for _ in range(SLOTS)] for _ in range(2)]

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Return an uninitialized device array."""
        return self.inner.empty(shape, dtype)

    def message(self, view: Any, sent: bool) -> CodedChunk:
        """Return the elements with the next slot of their direction."""
        slot = self._turn[sent] % SLOTS
        self._turn[sent] += 1
        message = self._slots[sent][slot][: self.codec.nbytes(view.size)]
        chunk = self.inner.message(message, sent)._replace(copied=self._free[sent][slot])
        spreads = sent and self._spreads and self.place == OUT
        lost = self._nothing_lost(view.size) if sent and self._keeps and not spreads else None
        return CodedChunk(view, message, chunk, lost, spreads, self._give_lost)

    def _nothing_lost(self, count: int) -> Any:
        """Return zeros, which are there before the stream reads them."""
        with self.up:
            return self.device.zeros((count,), FLOAT)

    def send(self, comm: MPI.Intracomm, message: CodedChunk, peer: int, tag: int, synchronous: bool) -> DeferredRequest:
        """Encode on stream `up`; send after that."""
        self.device.encode(self.name, message.elements, message.bytes, message.lost, message.spreads, self.up)
        self.inner.written()
        return self.inner.send(comm, message.chunk, peer, tag, synchronous)

    def receive(self, comm: MPI.Intracomm, message: CodedChunk, peer: int, tag: int) -> Awaited:
        """Post a receive into the slot, once what was in it is decoded."""
        return self.inner.receive(comm, message.chunk, peer, tag)

    def land(self, message: CodedChunk) -> None:
        """Decode on stream `up`."""
        self.inner.land(message.chunk)
        self.device.decode(self.name, message.bytes, message.elements, self.up)
        message.chunk.copied.record(self.up)

    def land_joined(self, op: Operation, message: CodedChunk, target: Any, source: Any, arrived: Any) -> None:
        """Decode and join on stream `up`, without the elements as they arrived; no message goes into what it reads."""
        self.inner.land(message.chunk)
        self.device.decode_join(op, self.name, target, source, message.bytes, self.up)
        message.chunk.copied.record(self.up)

    def mark(self) -> None:
        """Record the caller's stream."""
        self.inner.mark()

    def begin(self) -> Awaited | None:
        """Begin a run; return what it must wait for, or None."""
        return self.inner.begin()

    def copy(self, target: Any, source: Any) -> Awaited | None:
        """Copy on stream `up`."""
        return self.inner.copy(target, source)

    def join(self, op: Operation, target: Any, source: Any, arrived: Any) -> Awaited | None:
        """Join on stream `up`."""
        return self.inner.join(op, target, source, arrived)

    def divide(self, values: Any, ranks: int) -> None:
        """Divide on stream `up`."""
        self.inner.divide(values, ranks)

    def end(self) -> None:
        """Record the end of the run."""
        self.inner.end()

    def follow(self) -> None:
        """Make the caller's stream wait for the end of the run."""
        self.inner.follow()

    def free(self) -> None:
        """Wait for the last run."""
        self.inner.free()

    def break_off(self) -> None:
        """Begin no message that waits for the device."""
        self.inner.break_off()

    def _give_lost(self, lost: Any, to: np.ndarray) -> None:
        """Add an array of the device to one of the host; then it is zeros. Wait for both copies."""
        room, done = self.device.pinned(lost.nbytes), self.device.event()
        for target, source in ((room, lost), (lost, room)):
            self.device.copy(target, source, self.up)
            done.record(self.up)
            done.Wait()
            if target is room:
                to += room.view(FLOAT)
                room[...] = 0
