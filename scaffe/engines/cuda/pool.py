"""Offsets in one allocation for all blobs, so that blobs that are never in use together share memory.

Sizes and lifetimes go in, offsets come out; nothing here depends on a GPU. The greedy order, by size, is that of
Pisarchyk and Lee 2020, Efficient Memory Management for Deep Neural Net Inference, algorithm 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ALIGNMENT = 256  # bytes; CUDA's alignment of allocations


class Span(NamedTuple):
    """`nbytes` in use from step `first` to step `last` of a pass, both included."""

    nbytes: int
    first: int
    last: int

    def meets(self, other: Span) -> bool:
        """Say whether there is a step at which both are in use."""
        return self.first <= other.last and other.first <= self.last


class Placement(NamedTuple):
    """The offset of each span and the size of the allocation, both in bytes."""

    offsets: tuple[int, ...]
    nbytes: int


def pack(spans: Sequence[Span]) -> Placement:
    """Return offsets at which no two spans overlap that are in use at the same step.

    The largest spans come first. Each goes into the smallest gap that holds it, between the placed spans it meets.
    """
    offsets = [0] * len(spans)
    placed: list[int] = []  # by offset
    for i in sorted(range(len(spans)), key=lambda i: (-spans[i].nbytes, spans[i].first, i)):
        if spans[i].nbytes:
            offsets[i] = _best_gap(spans, offsets, [j for j in placed if spans[j].meets(spans[i])], spans[i].nbytes)
            placed.append(i)
            placed.sort(key=offsets.__getitem__)
    return Placement(tuple(offsets), max((offsets[i] + aligned(spans[i].nbytes) for i in placed), default=0))


def _best_gap(spans: Sequence[Span], offsets: Sequence[int], others: Sequence[int], nbytes: int) -> int:
    """Return the offset of the smallest gap of `nbytes` between the `others` (sorted by offset), else their end."""
    end, best, least = 0, -1, 0
    for j in others:
        gap = offsets[j] - end
        if gap >= nbytes and (best < 0 or gap < least):
            best, least = end, gap
        end = max(end, offsets[j] + aligned(spans[j].nbytes))
    return end if best < 0 else best


def aligned(nbytes: int) -> int:
    """Return `nbytes` rounded up to the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
