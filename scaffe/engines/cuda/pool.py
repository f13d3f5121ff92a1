"""Pool: where in one allocation each blob's memory lies, so that those that are never in use together share it.

Nothing here knows a GPU: sizes and times go in, offsets come out. The greedy order, by size, is that of Pisarchyk and
Lee 2020, Efficient Memory Management for Deep Neural Net Inference, algorithm 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ALIGNMENT = 256  # bytes, as CUDA aligns what it allocates


class Span(NamedTuple):
    """So many bytes, wanted from step `first` of a pass to step `last`, both included."""

    nbytes: int
    first: int
    last: int

    def meets(self, other: Span) -> bool:
        """Say whether there is a step at which both are wanted."""
        return self.first <= other.last and other.first <= self.last


class Plan(NamedTuple):
    """Where each span begins, in bytes, and how many bytes all take together."""

    offsets: tuple[int, ...]
    nbytes: int


def pack(spans: Sequence[Span]) -> Plan:
    """Return a place for each span, such that none overlaps another that is wanted at the same step.

    The largest come first, and each goes into the smallest gap, between those that it meets, that takes it.
    """
    offsets = [0] * len(spans)
    placed: list[int] = []  # by offset
    for i in sorted(range(len(spans)), key=lambda i: (-spans[i].nbytes, spans[i].first, i)):
        if spans[i].nbytes:
            offsets[i] = _best_gap(spans, offsets, [j for j in placed if spans[j].meets(spans[i])], spans[i].nbytes)
            placed.append(i)
            placed.sort(key=offsets.__getitem__)
    return Plan(tuple(offsets), max((offsets[i] + aligned(spans[i].nbytes) for i in placed), default=0))


def _best_gap(spans: Sequence[Span], offsets: Sequence[int], others: Sequence[int], nbytes: int) -> int:
    """Return where the smallest gap between the `others`, by offset, begins that takes `nbytes`, else their end."""
    end, best, least = 0, -1, 0
    for j in others:
        gap = offsets[j] - end
        if gap >= nbytes and (best < 0 or gap < least):
            best, least = end, gap
        end = max(end, offsets[j] + aligned(spans[j].nbytes))
    return end if best < 0 else best


def aligned(nbytes: int) -> int:
    """Return the bytes that a span takes up."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
