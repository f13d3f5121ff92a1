"""Trees over virtual ranks 0 to size - 1, rooted at 0: pure functions of integers.

A reduce goes up a tree, a broadcast goes down the same tree. `children` gives the order in which a reduce adds them,
nearest and soonest ready first; a broadcast sends to them in the opposite order. The numbering serves any root and any
placement: see `collectives.group`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class Tree(ABC):
    """The edges of a tree: `parent(v)` (None for the root, 0) and `children(v)` of each virtual rank v."""

    size: int

    @abstractmethod
    def parent(self, v: int) -> int | None:
        """Return the parent of v, None for the root."""

    @abstractmethod
    def children(self, v: int) -> list[int]:
        """Return the children of v, in the order in which a reduce adds them."""

    def levels(self, v: int) -> list[list[int]]:
        """Return v's children level by level of a hierarchy, lowest first; a plain tree has one level."""
        return [self.children(v)]

    def level(self, v: int) -> int:
        """Return the level at which v sends to its parent; 0 at the root of a plain tree."""
        return 0

    def height(self, v: int) -> int:
        """Return the number of edges on the longest path from v down to a leaf."""
        height, below = 0, self.children(v)
        while below:
            height, below = height + 1, [child for u in below for child in self.children(u)]
        return height

    def depth(self, v: int) -> int:
        """Return the number of edges from v up to the root."""
        depth, above = 0, self.parent(v)
        while above is not None:
            depth, above = depth + 1, self.parent(above)
        return depth
