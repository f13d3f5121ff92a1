"""Ring: blocks pass from neighbour to neighbour, first summed on the way, then as sums: P - 1 rounds each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from collectives.schedules.exchange import SHARE, SUM, ExchangeAlgorithm, ExchangeSteps
from collectives.schedules.registry import register
from collectives.schedules.schedule import OUT, OWN, Step, StepWriter
from collectives.verbs import Slice, block_of

if TYPE_CHECKING:
    from collectives.model.clusters import Cluster

EMPTY = 0, 0


def ring(v: int, size: int, half: int) -> Iterator[tuple[int, int]]:
    """Yield for each of size - 1 rounds the block that v sends to v + 1 and the block that it gets from v - 1.

    In SUM it adds its own data to what it gets; it then has the sum of block v. In SHARE the sums pass round.
    """
    for step in range(1, size):
        give = (v - step + (half == SHARE)) % size
        yield give, (give - 1) % size


class Sending(NamedTuple):
    """A piece that is sent once receive number `after` has come; -1: at once."""

    tag: int
    piece: Slice
    after: int


class RingSteps(ExchangeSteps):
    """Pieces of all blocks pass round the ring, several at a time: some are in flight while another is added."""

    def of(self, rank: int) -> list[Step]:
        """Return the steps of `rank`: one lap, of each half, for every few pieces of the blocks.

        A lap's first pieces are sent while the last ones of the lap before are still in flight.
        """
        v, writer = self.virtual[rank], StepWriter(self.depth)
        blocks = [self.pieces(block_of(other, self.bounds)) for other in self.order]
        cut = [list(each) for each in zip(*zip_longest(*blocks, fillvalue=EMPTY), strict=True)] or [[] for _ in blocks]
        sends, receives = self._laps(v, cut)
        places: list[int] = []  # of what has come
        sent = 0
        for i, (tag, piece, is_sum) in enumerate(receives):
            while sent < min(len(sends), i + self.together) and sends[sent].after < i:
                give = sends[sent]
                self._send(writer, v, give.tag, give.piece, self._first if give.after < 0 else places[give.after])
                sent += 1
            places.append(self._receive(writer, v, tag, piece, is_sum))
        if self.size == 1 and self.elements and SUM in self.halves:
            writer.copy((0, self.elements))
        return writer.steps

    @property
    def _first(self) -> int:
        """Return where pieces are before their lap."""
        return OWN if SUM in self.halves else OUT

    def _laps(self, v: int, cut: list[list[Slice]]) -> tuple[list[Sending], list[tuple[int, Slice, bool]]]:
        """Return what v sends, and what it receives with its tag and whether the result is a sum, in order."""
        rounds = [(half, *blocks) for half in self.halves for blocks in ring(v, self.size, half)]
        sends: list[Sending] = []
        receives: list[tuple[int, Slice, bool]] = []
        for first in range(0, len(cut[0]), self.together):
            pieces = [block[first : first + self.together] for block in cut]
            for i, (half, give, take) in enumerate(rounds):
                come = len(receives) - len(pieces[give])
                sends += [Sending(half, one, come + k if i else -1) for k, one in enumerate(pieces[give])]
                receives += [(half, one, i >= self.size - 2) for one in pieces[take]]
        return sends, receives

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

    def half_seconds(self, half: int, links: Cluster, ranks: int, nbytes: float, chunk: int) -> float:
        """Return the seconds of P - 1 rounds, each of which sends a block of `nbytes` / P in chunks.

        A chunk is added while the next one comes, so that of messages and additions the slower count; one chunk, and
        the last of several, is added afterwards.
        """
        part = nbytes / ranks
        chunks, (alpha, beta) = ceil(part / chunk), links.between(ranks)
        message, addition = chunks * alpha + part * beta, part * links.gamma * (half == SUM)
        if chunks == 1:
            return (ranks - 1) * (message + addition)
        return (ranks - 1) * max(message, addition) + min(message, addition) / chunks
