"""Exchanges over virtual ranks: recursive halving and the ring, as pure functions of integers.

Both cut the vector into blocks, sum each block on one rank (reduce-scatter) and hand the sums round along the same
way backwards (allgather). An allreduce of n bytes moves 2n(P - 1)/P bytes per rank, the least possible: halving in
2 log2 P rounds, the ring in 2(P - 1). Which ranks are neighbours is the numbering's affair: `Group.order` for the
ring, `Group.round_robin` for halving over supernodes (swCaffe, section V.A).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

Slice = tuple[int, int]


class Round(NamedTuple):
    """One round of recursive halving: v gives `partner` the blocks [give) and goes on with the blocks [keep)."""

    partner: int
    give: Slice
    keep: Slice


def survivors(size: int) -> int:
    """Return the largest power of two that is at most `size`: how many ranks take part in the halving."""
    return 1 << (size.bit_length() - 1)


def fold(v: int, size: int) -> int | None:
    """Return the rank with which v folds where `size` is no power of two, or None.

    A rank that is too many sends all its data to its partner before the halving and gets the result from it after.
    The distance between them is a power of two, so that round-robin numbers put them into one supernode.
    """
    power = survivors(size)
    if v >= power:
        return v - power
    return v + power if v + power < size else None


def halving(v: int, power: int) -> list[Round]:
    """Return the rounds of v, one of `power` ranks with as many blocks; at their end it has the sum of block v.

    The distance to the partner halves from power / 2 to 1, and with it the number of blocks given away.
    """
    rounds, low, distance = [], 0, power // 2
    while distance:
        lower, upper = (low, low + distance), (low + distance, low + 2 * distance)
        keep, give = (upper, lower) if v & distance else (lower, upper)
        rounds.append(Round(v ^ distance, give, keep))
        low, distance = keep[0], distance // 2
    return rounds


def ring(v: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield for each of 2(size - 1) rounds the block that v sends to v + 1 and the one it gets from v - 1.

    In the first half it adds its own to what it gets and has in the end the sum of block v; in the second half sums
    go round.
    """
    for step in range(1, 2 * size - 1):
        yield (v - step) % size, (v - step - 1) % size


def block(elements: int, parts: int, number: int) -> Slice:
    """Return one of `parts` nearly equal blocks that make up all elements."""
    return elements * number // parts, elements * (number + 1) // parts


def pieces(start: int, stop: int, count: int) -> list[Slice]:
    """Cut [start, stop) into `count` nearly equal pieces, some of them empty where there are fewer elements."""
    cuts = [start + (stop - start) * i // count for i in range(count + 1)]
    return list(pairwise(cuts))
