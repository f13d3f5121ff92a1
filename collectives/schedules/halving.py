"""Recursive halving and doubling: partners exchange halves, at half the distance each time.

A group of g ranks is divided into two, or three, nearly equal ones. Each rank sends its data of the other groups'
blocks to its partners there and adds what it gets of its own group's. A rank without a partner spreads its data over
several ranks. So any number of ranks ends with a block each, and takes about as long as the next power of two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise, zip_longest
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from collectives.schedules.exchange import SHARE, SUM, ExchangeAlgorithm, ExchangeSteps, pieces
from collectives.schedules.registry import register
from collectives.schedules.schedule import OUT, OWN, Step, StepWriter
from collectives.verbs import Slice, block_of, even_bounds

if TYPE_CHECKING:
    from collectives.group import Group
    from collectives.model.clusters import Cluster

RENUMBERED = ", renumbered"  # marks the model's row with virtual ranks taken from the supernodes in turn
ROUND = 64  # a round more counts as much as this part of the vector
FEW_PARTS, LONG = 4, 1 << 18  # at least so many, for vectors of so many elements
SOME = 4096  # ranks that stand for all
MOST_PARTS = 16  # ranks over which one without a partner spreads its data


class Passing(NamedTuple):
    """What v sends to, or gets from, `peer`: the blocks [low, high) of virtual ranks, `part` of `parts` of each."""

    peer: int
    blocks: Slice
    part: int = 0
    parts: int = 1


class Round(NamedTuple):
    """One round of v: its transfers in the first half; in the second one they go the other way.

    `divides`: whether it is the first round between these groups. Three groups take two rounds.
    """

    divides: bool
    sends: list[Passing]
    receives: list[Passing]


@cache
def groups(size: int) -> tuple[int, ...]:
    """Return the sizes of the groups into which so many ranks are divided: those that take the shortest time."""

    def time(sizes: tuple[int, ...]) -> tuple[float, int]:
        blocks, rounds = _cost(sizes)
        return blocks + rounds * size / ROUND, len(sizes)

    return min(_divisions(size), key=time)


def cost(size: int) -> tuple[int, int]:
    """Return the blocks that the busiest of so many ranks sends in one half, and the rounds."""
    return _cost(groups(size)) if size > 1 else (0, 0)


def _divisions(size: int) -> list[tuple[int, ...]]:
    """Return the divisions into two and three nearly equal groups, large ones first."""
    return [tuple((size + k - 1 - i) // k for i in range(k)) for k in (2, 3) if k <= size]


def _cost(sizes: tuple[int, ...]) -> tuple[int, int]:
    """Return the same, from this division on."""
    blocks, rounds = cost(sizes[0])
    return blocks + (len(sizes) - 1) * sizes[0], rounds + len(sizes) - 1


def blocks_of_rounds(size: int) -> Iterator[int]:
    """Yield the blocks that the busiest of so many ranks sends in each round of one half."""
    while size > 1:
        size, *others = groups(size)
        yield from [size] * len(others)


def halving(v: int, size: int, parts: int = 1) -> Iterator[Round]:
    """Yield the rounds of v, one of `size` ranks with a block each; at the end it has the sum of block v.

    A rank without a partner spreads its data over `parts` ranks, as far as there are so many.
    """
    low, count = 0, size
    while count > 1:
        division = groups(count)
        ends = [low + sum(division[:k]) for k in range(len(division) + 1)]
        places = [*zip(ends, ends[1:], strict=False)]
        mine = next(k for k, (start, stop) in enumerate(places) if start <= v < stop)
        for shift in range(1, len(places)):
            to, source = places[(mine + shift) % len(places)], places[mine - shift]
            yield Round(shift == 1, _over(v - places[mine][0], to, parts), _to(v, places[mine], source, parts))
        low, count = places[mine][0], division[mine]


def _over(number: int, to: Slice, parts: int) -> list[Passing]:
    """Return what rank `number` of a group sends to the group `to`."""
    start, stop = to
    if number < stop - start:
        return [Passing(start + number, to)]
    several = min(stop - start, parts)
    return [Passing(start + part, to, part, several) for part in range(several)]


def _to(v: int, mine: Slice, source: Slice, parts: int) -> list[Passing]:
    """Return what v, of the group `mine`, gets from the group `source`: from its partner first."""
    number = v - mine[0]
    found = [Passing(source[0] + number, mine)] if source[0] + number < source[1] else []
    for other in range(source[0] + mine[1] - mine[0], source[1]):
        found += [one._replace(peer=other) for one in _over(other - source[0], mine, parts) if one.peer == v]
    return found


class HalvingSteps(ExchangeSteps):
    """The rounds of the first half, then the same the other way."""

    def of(self, rank: int) -> list[Step]:
        """Return the steps of `rank`."""
        v, writer = self.virtual[rank], StepWriter(self.depth)
        several = min(MOST_PARTS, self.elements // self.chunk)
        parts = 1 if self.blockwise else max(FEW_PARTS if self.elements >= LONG else 1, several)
        rounds = list(halving(v, self.size, parts))
        whole = part = OWN  # where its data of its last group's blocks are, and those of its next, smaller group's
        for round in rounds if SUM in self.halves else ():
            whole = part if round.divides else whole
            part = self._sum(writer, round, whole, part)
        for round in reversed(rounds) if SHARE in self.halves else ():
            self._share(writer, round)
        if self.size == 1 and self.elements and SUM in self.halves:
            writer.copy((0, self.elements))
        return writer.steps

    def _sum(self, writer: StepWriter, round: Round, whole: int, part: int) -> int:
        """Send from `whole`, add what comes to what is at `part`; return where that is then."""
        receives = [(k, peer, piece) for k, one in enumerate(round.receives) for peer, piece in self._cut([one])]
        for send, receive in self._in_turn(self._cut(round.sends), receives):
            if send:
                writer.send(self.order[send[0]], SUM, send[1], whole)
            if receive:
                k, peer, piece = receive
                writer.recv_add(self.order[peer], SUM, piece, writer.slot(0), OUT if k else part, OUT)
        return OUT if round.receives else part

    def _share(self, writer: StepWriter, round: Round) -> None:
        """Send this rank's sums to those that it had them from, and get the others' sums."""
        for send, receive in self._in_turn(self._cut(round.receives), self._cut(round.sends)):
            if send:
                writer.send(self.order[send[0]], SHARE, send[1], OUT)
            if receive:
                writer.recv(self.order[receive[0]], SHARE, receive[1])

    def _in_turn(self, sends: Sequence[Any], receives: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield each send with a receive before it: `together` pieces are sent before the first is waited for."""
        return zip_longest(sends, [*[None] * (self.together - 1), *receives])

    def _cut(self, transfers: Sequence[Passing]) -> list[tuple[int, Slice]]:
        """Return the pieces of transfers, with their peers."""
        return [
            (one.peer, piece)
            for one in transfers
            for start, stop in self._slices(one.blocks)
            for piece in self.pieces(pieces(start, stop, one.parts)[one.part])
        ]

    def _slices(self, blocks: Slice) -> list[Slice]:
        """Return the parts of the vector that hold the blocks of consecutive virtual ranks.

        With both halves any rank may have any block: those of consecutive virtual ranks then lie side by side.
        """
        if len(self.halves) > 1:
            bounds = even_bounds(self.elements, self.size)[blocks[0] : blocks[1] + 1]
            return [*pairwise(bounds)] if self.blockwise else [(bounds[0], bounds[-1])]
        found: list[Slice] = []
        for start, stop in sorted(block_of(self.order[v], self.bounds) for v in range(*blocks)):
            if found and found[-1][1] == start and not self.blockwise:
                found[-1] = found[-1][0], stop
            elif start < stop:
                found.append((start, stop))
        return found


@cache
def _leaving(ranks: int, inside: int, distance: int) -> int:
    """Return how many of a node's ranks, at most, have a partner at this distance on the next node."""
    lower = (v for v in range(min(ranks, SOME) - distance) if v // distance % 2 == 0)
    return max(Counter(v // inside for v in lower if v // inside != (v + distance) // inside).values(), default=0)


def _moved(nbytes: float, chunk: float, alpha: float, beta: float, gamma: float) -> float:
    """Return the seconds of a message in chunks, the last of which is added after it has come."""
    chunk = min(nbytes, chunk)
    last, waits = ceil(nbytes / chunk) * alpha + nbytes * beta + chunk * gamma, alpha + chunk * beta + nbytes * gamma
    return max(last, waits)


@register
class HalvingAlgorithm(ExchangeAlgorithm):
    """Algorithm `halving`."""

    name = "halving"
    about = "partners exchange halves, each time at half the distance; over supernodes as in swCaffe, section V.A"
    rounds = "n (P - 1) / P of each half, at least log P"
    likely = {"allreduce": 1, "reduce_scatter": 1, "allgather": 1}
    exchange = HalvingSteps

    def modelled(self, verb: str) -> tuple[str, ...]:
        """Return the name with both numberings of the ranks."""
        return (self.name, self.name + RENUMBERED)

    def half_seconds(self, half: int, links: Cluster, ranks: int, nbytes: float, chunk: int) -> float:
        """Return swCaffe's equations 3 to 6, round by round; a node's ranks share its adapters between nodes.

        A chunk is added while the next one comes. Where the ranks are no power of two, the largest groups count. Where
        a node's ranks are none, rounds stay in it that all its pairs could; where the supernodes are none, a round
        crosses them with the part of its bytes that the equations say.
        """
        inside = min(ranks, links.ranks_per_node)
        in_node = 1 << (inside.bit_length() - 1)
        per_supernode = (links.nodes_per_supernode or ranks) * inside
        supernodes = min(max(1, ranks // per_supernode), ranks // in_node)
        shared = max(1.0, inside / links.nics)
        crowded = max(shared, inside / links.nics * links.oversubscription)
        seconds = 0.0
        for parts in blocks_of_rounds(ranks):  # of P, which a rank sends
            leaving = _leaving(ranks, inside, parts) if ranks & (ranks - 1) else 0  # in groups that cross a node's end
            if parts >= in_node and ranks > inside:
                across = min(1.0, max(0.0, in_node * supernodes / parts - 1))
                alpha, beta = links.alpha, links.beta * (shared + (crowded - shared) * across)
            elif leaving:
                alpha, beta = links.alpha, links.beta * max(1.0, leaving / links.nics)
            else:
                alpha, beta = links.alpha_in, links.beta_in
            seconds += _moved(nbytes * parts / ranks, chunk, alpha, beta, links.gamma * (half == SUM))
        return seconds

    def order(self, group: Group, root: int) -> list[int]:
        """Return the ranks taken from the supernodes in turn (swCaffe, section V.A)."""
        return group.round_robin()
