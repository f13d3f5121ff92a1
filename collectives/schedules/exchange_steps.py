"""Steps of allreduce and reduce_scatter over a ring and by recursive halving and doubling."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from collectives.schedules.exchange import Round, block, fold, halving, pieces, ring, survivors
from collectives.schedules.schedule import OUT, OWN, Part, Slice, Step, chunks

SUM, SHARE = 0, 1  # tags: what is to be added, and sums that go round


@dataclass(frozen=True)
class ExchangePlan(ABC):
    """What all ranks of an exchange share; `order` maps virtual ranks to ranks, `virtual` back."""

    order: Sequence[int]
    virtual: Sequence[int]
    elements: int
    chunk: int
    depth: int
    share: bool  # an allreduce hands the sums round; a reduce_scatter leaves them where they are

    @property
    def size(self) -> int:
        return len(self.order)

    @abstractmethod
    def own_block(self, rank: int) -> Slice:
        """Return the slice whose sum stands on `rank` after the first half."""

    def block(self, rank: int) -> Slice:
        return (0, self.elements) if self.share else self.own_block(rank)

    def _pieces(self, blocks: Sequence[Slice]) -> list[list[Slice]]:
        """Cut each of some blocks into the same number of pieces, none longer than a chunk."""
        longest = max(stop - start for start, stop in blocks)
        count = max(1, -(-longest // self.chunk))
        return [pieces(start, stop, count) for start, stop in blocks]


class RingPlan(ExchangePlan):
    """Pieces of all blocks go round the ring two by two, so that one is added while the next one is on its way."""

    def own_block(self, rank: int) -> Slice:
        """The block with the rank's own number."""
        return block(self.elements, self.size, rank)

    def part(self, rank: int) -> list[Step]:
        v, part = self.virtual[rank], Part(self.depth)
        cut = self._pieces([self.own_block(rank) for rank in self.order])
        together = 2 if self.depth > 2 else 1
        for first in range(0, len(cut[0]), together):
            self._lap(part, v, [block[first : first + together] for block in cut])
        if self.size == 1 and self.elements:
            part.copy((0, self.elements))
        return part.steps

    def _lap(self, part: Part, v: int, cut: list[list[Slice]]) -> None:
        """Send some pieces of each block all the way round; the first of them are under way before any is awaited."""
        together = len(cut[0])
        rounds = list(islice(ring(v, self.size), None if self.share else self.size - 1))
        sends = [piece for give, _ in rounds for piece in cut[give]]
        receives = [piece for _, take in rounds for piece in cut[take]]
        places = [OWN] * together  # where what is sent next stands
        for i, piece in enumerate(sends[: together - 1]):
            self._send(part, v, i, together, piece, OWN)
        for i, piece in enumerate(receives):
            ahead = i + together - 1
            if ahead < len(sends):
                self._send(part, v, ahead, together, sends[ahead], places[ahead])
            places.append(self._receive(part, v, i, together, piece))

    def _send(self, part: Part, v: int, i: int, together: int, piece: Slice, place: int) -> None:
        if piece[0] < piece[1]:
            part.send(self.order[(v + 1) % self.size], self._tag(i, together), piece, place)

    def _receive(self, part: Part, v: int, i: int, together: int, piece: Slice) -> int:
        """Take the i-th piece from the left neighbour and return where it stands: a slot, or OUT once it is a sum."""
        last = i >= (self.size - 2) * together
        if piece[0] == piece[1]:
            return OUT
        left, tag = self.order[v - 1], self._tag(i, together)
        if tag == SHARE:
            part.recv(left, tag, piece)
            return OUT
        slot = part.slot(0)
        part.recv_add(left, tag, piece, slot, OWN, OUT if last else slot)
        return OUT if last else slot

    def _tag(self, i: int, together: int) -> int:
        return SUM if i < (self.size - 1) * together else SHARE


class HalvingPlan(ExchangePlan):
    """The ranks left over by the largest power of two fold into others first and get the result last."""

    def own_block(self, rank: int) -> Slice:
        """The block with the rank's virtual number; nothing on ranks that folded into others."""
        v, power = self.virtual[rank], survivors(self.size)
        return (0, 0) if v >= power else self._blocks((v, v + 1))

    def _blocks(self, numbers: Slice) -> Slice:
        power = survivors(self.size)
        return self.elements * numbers[0] // power, self.elements * numbers[1] // power

    def part(self, rank: int) -> list[Step]:
        v, part = self.virtual[rank], Part(self.depth)
        partner = fold(v, self.size)
        if v >= survivors(self.size):
            self._hand_over(part, partner)
        else:
            self._halve(part, v, partner)
        if self.size == 1 and self.elements:
            part.copy((0, self.elements))
        return part.steps

    def _hand_over(self, part: Part, partner: int | None) -> None:
        assert partner is not None
        for chunk in chunks(0, self.elements, self.chunk):
            part.send(self.order[partner], SUM, chunk, OWN)
        if self.share:
            for chunk in chunks(0, self.elements, self.chunk):
                part.recv(self.order[partner], SHARE, chunk)

    def _halve(self, part: Part, v: int, folded: int | None) -> None:
        place, rounds = OWN, halving(v, survivors(self.size))
        if folded is not None:
            for chunk in chunks(0, self.elements, self.chunk):
                part.recv_add(self.order[folded], SUM, chunk, part.slot(0), OWN, OUT)
            place = OUT
        for round in rounds:
            self._trade(part, round, SUM, place)
            place = OUT
        if not self.share:
            return
        for round in reversed(rounds):
            self._trade(part, Round(round.partner, give=round.keep, keep=round.give), SHARE, OUT)
        if folded is not None:
            for chunk in chunks(0, self.elements, self.chunk):
                part.send(self.order[folded], SHARE, chunk, OUT)

    def _trade(self, part: Part, round: Round, tag: int, place: int) -> None:
        """Swap pieces with the partner; each is sent before the one that came just before it is awaited."""
        give, keep = self._pieces([self._blocks(round.give), self._blocks(round.keep)])
        partner = self.order[round.partner]
        for i in range(len(give) + 1):
            if i < len(give) and give[i][0] < give[i][1]:
                part.send(partner, tag, give[i], place)
            if i and keep[i - 1][0] < keep[i - 1][1]:
                self._take(part, partner, tag, keep[i - 1], place)

    def _take(self, part: Part, partner: int, tag: int, piece: Slice, place: int) -> None:
        if tag == SUM:
            part.recv_add(partner, tag, piece, part.slot(0), place, OUT)
        else:
            part.recv(partner, tag, piece)
