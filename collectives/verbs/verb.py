"""Verb: what a collective is, apart from any algorithm: which part of a vector each rank brings, and which it gets.

The vector has one block for each rank, in the order of the ranks. `bounds` has P + 1 numbers: rank r's block is
[bounds[r], bounds[r + 1]). A verb with a root regards no blocks, one without a root no `root`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

Slice = tuple[int, int]
NOTHING = 0, 0


class Verb(ABC):
    """A collective.

    - `joins`: contributions are joined by an operation; else elements are only moved.
    - `spreads`: elements go from where they are complete to all ranks. A verb that does neither has no schedule.
    - `has_root`, `has_blocks`: whether a root, or a division into blocks, makes a difference.
    """

    name: str
    title: str  # in the benchmark's tables
    has_root = joins = spreads = has_blocks = False
    summary: str  # a line for the documentation

    @property
    def is_scheduled(self) -> bool:
        """Return whether schedules of ours do it; the others are the MPI library's own."""
        return self.joins or self.spreads

    def contribution(self, rank: int, root: int, bounds: Sequence[int]) -> Slice:
        """Return the part of the vector that a rank brings; by default all."""
        return 0, bounds[-1]

    def result(self, rank: int, root: int, bounds: Sequence[int]) -> Slice:
        """Return the part of the vector that a rank gets; by default all."""
        return 0, bounds[-1]

    @abstractmethod
    def moved(self, places: int) -> float:
        """Return the vectors that the busiest of `places` ranks or nodes sends or receives at least, whatever is done.

        Times the seconds per byte of its link it is a bound that no schedule can beat.
        """

    @abstractmethod
    def touched(self, ranks: int) -> float:
        """Return the vectors that the memory of a node is read or written for at least, all ranks together."""


def block_of(rank: int, bounds: Sequence[int]) -> Slice:
    """Return a rank's block."""
    return bounds[rank], bounds[rank + 1]


def arrays_of(verb: Verb, rank: int, size: int, root: int, send: Any, recv: Any) -> tuple[Any, Any]:
    """Return the parts of two vectors that a rank gives to a call with nearly equal blocks, None for no result."""
    bounds = even_bounds(len(send), size)
    if verb.spreads and verb.has_root:
        return send, None
    return tuple(
        one[slice(*part)] if part != NOTHING or verb.has_blocks else None
        for one, part in ((send, verb.contribution(rank, root, bounds)), (recv, verb.result(rank, root, bounds)))
    )  # type: ignore[return-value]


def even_bounds(elements: int, size: int) -> tuple[int, ...]:
    """Return the bounds of `size` nearly equal blocks."""
    return tuple(elements * rank // size for rank in range(size + 1))


def bounds_of(counts: Sequence[int]) -> tuple[int, ...]:
    """Return the bounds of blocks of these lengths."""
    return tuple(accumulate(counts, initial=0))


def counts_of(bounds: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths of the blocks."""
    return tuple(stop - start for start, stop in pairwise(bounds))
