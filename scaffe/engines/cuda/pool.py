"""Offsets in one allocation for all blobs, so that blobs that are never in use together share memory.

Usage records go in, offsets come out; nothing here depends on a GPU. Records and the greedy order, by size, are those
of Pisarchyk and Lee 2020, Efficient Memory Management for Deep Neural Net Inference, algorithm 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ALIGNMENT = 256  # bytes; CUDA's alignment of allocations


class UsageRecord(NamedTuple):
    """A blob's array: `nbytes` bytes, in use from step `first` to step `last` of a pass, both included."""

    nbytes: int
    first: int
    last: int

    def meets(self, other: UsageRecord) -> bool:
        """Return whether there is a step at which both are in use."""
        return self.first <= other.last and other.first <= self.last


class Placement(NamedTuple):
    """The offset of each blob and the size of the allocation, both in bytes."""

    offsets: tuple[int, ...]
    nbytes: int


def pack(records: Sequence[UsageRecord]) -> Placement:
    """Return offsets at which no two blobs overlap that are in use at the same step.

    The largest come first. Each goes into the smallest gap that holds it, between the placed ones it meets.
    """
    offsets = [0] * len(records)
    placed: list[int] = []  # by offset
    for i in sorted(range(len(records)), key=lambda i: (-records[i].nbytes, records[i].first, i)):
        if records[i].nbytes:
            others = [j for j in placed if records[j].meets(records[i])]
            offsets[i] = _best_gap(records, offsets, others, records[i].nbytes)
            placed.append(i)
            placed.sort(key=offsets.__getitem__)
    return Placement(tuple(offsets), max((offsets[i] + aligned(records[i].nbytes) for i in placed), default=0))


def _best_gap(records: Sequence[UsageRecord], offsets: Sequence[int], others: Sequence[int], nbytes: int) -> int:
    """Return the offset of the smallest gap of `nbytes` between the `others` (sorted by offset), else their end."""
    end, best, least = 0, -1, 0
    for j in others:
        gap = offsets[j] - end
        if gap >= nbytes and (best < 0 or gap < least):
            best, least = end, gap
        end = max(end, offsets[j] + aligned(records[j].nbytes))
    return end if best < 0 else best


def aligned(nbytes: int) -> int:
    """Return `nbytes` rounded up to the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
