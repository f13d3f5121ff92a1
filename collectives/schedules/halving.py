"""Recursive halving and doubling: partners exchange halves, at half the distance each time: 2 log2 P rounds."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, NamedTuple

from collectives.schedules.exchange import SHARE, SUM, ExchangeAlgorithm, ExchangeSteps
from collectives.schedules.registry import register
from collectives.schedules.schedule import OUT, OWN, Slice, Step, StepWriter, chunks

if TYPE_CHECKING:
    from collectives.group import Group

RENUMBERED = ", renumbered"  # marks the model's row with virtual ranks taken from the supernodes in turn


class Round(NamedTuple):
    """One round of recursive halving: v sends the blocks [give) to `partner` and keeps the blocks [keep)."""

    partner: int
    give: Slice
    keep: Slice


def survivors(size: int) -> int:
    """Return the largest power of two that is at most `size`: the number of ranks that take part in the halving."""
    return 1 << (size.bit_length() - 1)


def fold(v: int, size: int) -> int | None:
    """Return the rank with which v folds where `size` is no power of two, or None.

    An excess rank sends all its data to its partner before the halving and gets the result after it. Their distance is
    a power of two, so that round-robin numbers put them into one supernode.
    """
    power = survivors(size)
    if v >= power:
        return v - power
    return v + power if v + power < size else None


def halving(v: int, power: int) -> list[Round]:
    """Return the rounds of v, one of `power` ranks with as many blocks; at the end it has the sum of block v.

    The distance to the partner halves from power / 2 to 1, and so does the number of blocks sent.
    """
    rounds, low, distance = [], 0, power // 2
    while distance:
        lower, upper = (low, low + distance), (low + distance, low + 2 * distance)
        keep, give = (upper, lower) if v & distance else (lower, upper)
        rounds.append(Round(v ^ distance, give, keep))
        low, distance = keep[0], distance // 2
    return rounds


class HalvingSteps(ExchangeSteps):
    """Ranks beyond the largest power of two fold into others first and get the result last."""

    def _blocks(self, numbers: Slice) -> Slice:
        """Return the elements of consecutive blocks."""
        power = survivors(self.size)
        return self.elements * numbers[0] // power, self.elements * numbers[1] // power

    def of(self, rank: int) -> list[Step]:
        """Return the steps of `rank`."""
        v, writer = self.virtual[rank], StepWriter(self.depth)
        partner = fold(v, self.size)
        if v >= survivors(self.size):
            self._hand_over(writer, partner)
        else:
            self._halve(writer, v, partner)
        if self.size == 1 and self.elements:
            writer.copy((0, self.elements))
        return writer.steps

    def _hand_over(self, writer: StepWriter, partner: int | None) -> None:
        """Send all data to the partner; receive the result."""
        assert partner is not None
        for chunk in chunks(0, self.elements, self.chunk):
            writer.send(self.order[partner], SUM, chunk, OWN)
        for chunk in chunks(0, self.elements, self.chunk):
            writer.recv(self.order[partner], SHARE, chunk)

    def _halve(self, writer: StepWriter, v: int, folded: int | None) -> None:
        """Add the folded rank's data, halve, double, and send the folded rank the result."""
        place, rounds = OWN, halving(v, survivors(self.size))
        if folded is not None:
            for chunk in chunks(0, self.elements, self.chunk):
                writer.recv_add(self.order[folded], SUM, chunk, writer.slot(0), OWN, OUT)
            place = OUT
        for round in rounds:
            self._trade(writer, round, SUM, place)
            place = OUT
        for round in reversed(rounds):
            self._trade(writer, Round(round.partner, give=round.keep, keep=round.give), SHARE, OUT)
        if folded is not None:
            for chunk in chunks(0, self.elements, self.chunk):
                writer.send(self.order[folded], SHARE, chunk, OUT)

    def _trade(self, writer: StepWriter, round: Round, tag: int, place: int) -> None:
        """Exchange pieces with the partner; each is sent before the one before it is received."""
        give, keep = self._pieces([self._blocks(round.give), self._blocks(round.keep)])
        partner = self.order[round.partner]
        for i in range(len(give) + 1):
            if i < len(give) and give[i][0] < give[i][1]:
                writer.send(partner, tag, give[i], place)
            if i and keep[i - 1][0] < keep[i - 1][1]:
                self._take(writer, partner, tag, keep[i - 1], place)

    def _take(self, writer: StepWriter, partner: int, tag: int, piece: Slice, place: int) -> None:
        """Receive a piece, and add it in the first half."""
        if tag == SUM:
            writer.recv_add(partner, tag, piece, writer.slot(0), place, OUT)
        else:
            writer.recv(partner, tag, piece)


@register
class HalvingAlgorithm(ExchangeAlgorithm):
    """Algorithm `halving`."""

    name = "halving"
    about = "partners exchange halves, each time at half the distance; over supernodes as in swCaffe, section V.A"
    rounds = "2 n (P - 1) / P, at least 2 log P"
    likely = {"allreduce": 1}
    exchange = HalvingSteps

    def modelled(self, verb: str) -> tuple[str, ...]:
        """Return the name with both numberings of the ranks."""
        return (self.name, self.name + RENUMBERED)

    def seconds(self, ranks: int, nbytes: float, chunk_bytes: int, alpha: float, beta: float, gamma: float) -> float:
        """Return swCaffe's equations 3 and 4 within one supernode, and the latencies of the chunks.

        As in the equations, additions follow the messages, so that a time of many chunks is an upper bound:
        `scaffe.simulation.closed_forms` hides a chunk's addition behind the next chunk, as devices do. This form ranks
        algorithms for the tables of tuning, of nodes without GPUs, and `ring_time` beside it adds the same way.
        """
        one_way = log2(ranks) * alpha + (ranks - 1) * beta * nbytes / ranks
        adds = (ranks - 1) / ranks * nbytes * gamma
        return 2 * (nbytes // chunk_bytes) * alpha + (one_way + adds) + one_way

    def order(self, group: Group, root: int) -> list[int]:
        """Return the ranks taken from the supernodes in turn (swCaffe, section V.A)."""
        return group.round_robin()
