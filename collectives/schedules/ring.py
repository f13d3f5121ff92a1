"""Ring: blocks pass from neighbour to neighbour, first summed on the way, then as sums: P - 1 rounds each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from math import ceil

from collectives.schedules.exchange import SHARE, SUM, ExchangeAlgorithm, ExchangeSteps
from collectives.schedules.registry import register
from collectives.schedules.schedule import OUT, OWN, Step, StepWriter
from collectives.verbs import Slice, block_of

EMPTY = 0, 0


def ring(v: int, size: int, half: int) -> Iterator[tuple[int, int]]:
    """Yield for each of size - 1 rounds the block that v sends to v + 1 and the block that it gets from v - 1.

    In SUM it adds its own data to what it gets; it then has the sum of block v. In SHARE the sums pass round.
    """
    for step in range(1, size):
        give = (v - step + (half == SHARE)) % size
        yield give, (give - 1) % size


class RingSteps(ExchangeSteps):
    """Pieces of all blocks pass round the ring two by two, so that one is added while the next is in flight."""

    def of(self, rank: int) -> list[Step]:
        """Return the steps of `rank`: one lap, of each half, for every two pieces of the blocks."""
        v, writer = self.virtual[rank], StepWriter(self.depth)
        blocks = [self.pieces(block_of(other, self.bounds)) for other in self.order]
        cut = [list(each) for each in zip(*zip_longest(*blocks, fillvalue=EMPTY), strict=True)] or [[] for _ in blocks]
        together = 2 if self.depth > 2 else 1
        for first in range(0, len(cut[0]), together):
            self._lap(writer, v, [block[first : first + together] for block in cut])
        if self.size == 1 and self.elements and SUM in self.halves:
            writer.copy((0, self.elements))
        return writer.steps

    def _lap(self, writer: StepWriter, v: int, cut: list[list[Slice]]) -> None:
        """Send some pieces of each block all the way round; the first of them are sent before any is received."""
        together = len(cut[0])
        rounds = [(half, *blocks) for half in self.halves for blocks in ring(v, self.size, half)]
        sends = [(half, piece) for half, give, _ in rounds for piece in cut[give]]
        receives = [(half, piece) for half, _, take in rounds for piece in cut[take]]
        places = [OWN if SUM in self.halves else OUT] * together  # the place of the next piece to be sent
        for send in sends[: together - 1]:
            self._send(writer, v, *send, places[0])
        for i, receive in enumerate(receives):
            ahead = i + together - 1
            if ahead < len(sends):
                self._send(writer, v, *sends[ahead], places[ahead])
            places.append(self._receive(writer, v, *receive, is_sum=i >= (self.size - 2) * together))

    def _send(self, writer: StepWriter, v: int, tag: int, piece: Slice, place: int) -> None:
        """Send a piece to the right neighbour, unless it is empty."""
        if piece[0] < piece[1]:
            writer.send(self.order[(v + 1) % self.size], tag, piece, place)

    def _receive(self, writer: StepWriter, v: int, tag: int, piece: Slice, is_sum: bool) -> int:
        """Receive a piece from the left neighbour; return its place: a slot, or OUT once it is a sum."""
        left = self.order[v - 1]
        if piece[0] == piece[1]:
            return OUT
        if tag == SHARE:
            writer.recv(left, tag, piece)
            return OUT
        slot = writer.slot(0)
        writer.recv_add(left, tag, piece, slot, OWN, OUT if is_sum else slot)
        return OUT if is_sum else slot


@register
class RingAlgorithm(ExchangeAlgorithm):
    """Algorithm `ring`."""

    name = "ring"
    about = "blocks go round and are summed on the way, then the sums go round"
    rounds = "n (P - 1) / P of each half, at least P - 1"
    likely = {"allreduce": 0, "reduce_scatter": 0, "allgather": 0}
    exchange = RingSteps
    neighbours = True

    def half_seconds(self, ranks: int, nbytes: float, chunk_bytes: int, alpha: float, beta: float) -> float:
        """Return the seconds of P - 1 rounds, each of which sends a block of `nbytes` / P in chunks."""
        part = nbytes / ranks
        return (ranks - 1) * (ceil(part / chunk_bytes) * alpha + part * beta)
