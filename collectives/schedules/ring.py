"""Ring: blocks pass from neighbour to neighbour, first summed on the way, then as sums: 2 (P - 1) rounds."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from collectives.schedules.exchange import SHARE, SUM, ExchangeAlgorithm, ExchangeSteps, block
from collectives.schedules.registry import register
from collectives.schedules.schedule import OUT, OWN, Slice, Step, StepWriter


def ring(v: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield for each of 2 (size - 1) rounds the block that v sends to v + 1 and the block that it gets from v - 1.

    In the first half it adds its own data to what it gets; it then has the sum of block v. In the second half the sums
    pass round.
    """
    for step in range(1, 2 * size - 1):
        yield (v - step) % size, (v - step - 1) % size


def ring_time(ranks: int, nbytes: float, chunk_bytes: int, alpha: float, beta: float, gamma: float) -> float:
    """Return the seconds of 2 (P - 1) rounds, each of which sends a block of `nbytes` / P in chunks.

    A message of b bytes takes `alpha` + b `beta` seconds, adding b bytes takes b `gamma`.
    """
    part = nbytes / ranks
    step = ceil(part / chunk_bytes) * alpha + part * beta
    return 2 * (ranks - 1) * step + (ranks - 1) * part * gamma


class RingSteps(ExchangeSteps):
    """Pieces of all blocks pass round the ring two by two, so that one is added while the next is in flight."""

    def of(self, rank: int) -> list[Step]:
        """Return the steps of `rank`: one lap for every two pieces of the blocks."""
        v, writer = self.virtual[rank], StepWriter(self.depth)
        cut = self._pieces([block(self.elements, self.size, rank) for rank in self.order])
        together = 2 if self.depth > 2 else 1
        for first in range(0, len(cut[0]), together):
            self._lap(writer, v, [block[first : first + together] for block in cut])
        if self.size == 1 and self.elements:
            writer.copy((0, self.elements))
        return writer.steps

    def _lap(self, writer: StepWriter, v: int, cut: list[list[Slice]]) -> None:
        """Send some pieces of each block all the way round; the first of them are sent before any is received."""
        together = len(cut[0])
        rounds = list(ring(v, self.size))
        sends = [piece for give, _ in rounds for piece in cut[give]]
        receives = [piece for _, take in rounds for piece in cut[take]]
        places = [OWN] * together  # the place of the next piece to be sent
        for i, piece in enumerate(sends[: together - 1]):
            self._send(writer, v, i, together, piece, OWN)
        for i, piece in enumerate(receives):
            ahead = i + together - 1
            if ahead < len(sends):
                self._send(writer, v, ahead, together, sends[ahead], places[ahead])
            places.append(self._receive(writer, v, i, together, piece))

    def _send(self, writer: StepWriter, v: int, i: int, together: int, piece: Slice, place: int) -> None:
        """Send a piece to the right neighbour, unless it is empty."""
        if piece[0] < piece[1]:
            writer.send(self.order[(v + 1) % self.size], self._tag(i, together), piece, place)

    def _receive(self, writer: StepWriter, v: int, i: int, together: int, piece: Slice) -> int:
        """Receive the i-th piece from the left neighbour; return its place: a slot, or OUT once it is a sum."""
        last = i >= (self.size - 2) * together
        if piece[0] == piece[1]:
            return OUT
        left, tag = self.order[v - 1], self._tag(i, together)
        if tag == SHARE:
            writer.recv(left, tag, piece)
            return OUT
        slot = writer.slot(0)
        writer.recv_add(left, tag, piece, slot, OWN, OUT if last else slot)
        return OUT if last else slot

    def _tag(self, i: int, together: int) -> int:
        """Return the tag of the i-th piece of a lap."""
        return SUM if i < (self.size - 1) * together else SHARE


@register
class RingAlgorithm(ExchangeAlgorithm):
    """Algorithm `ring`."""

    name = "ring"
    about = "blocks go round and are summed on the way, then the sums go round"
    rounds = "2 n (P - 1) / P, at least 2 (P - 1)"
    likely = {"allreduce": 0}
    exchange = RingSteps
    neighbours = True

    def seconds(self, ranks: int, nbytes: float, chunk_bytes: int, alpha: float, beta: float, gamma: float) -> float:
        """Return the ring's closed form."""
        return ring_time(ranks, nbytes, chunk_bytes, alpha, beta, gamma)
