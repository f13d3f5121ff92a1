"""Two trees: half of the data goes over each, so that all links carry data in both directions."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from collectives.schedules.registry import register
from collectives.schedules.tree_algorithm import Hops, TreeAlgorithm
from collectives.schedules.trees import Tree


@dataclass(frozen=True)
class InOrder(Tree):
    """One of the two trees of Sanders, Speck and Träff (2009): binary, numbered in order, below the root 0.

    The ranks 1 to m = size - 1 stand at positions 1 to m; even positions have children, odd ones are leaves. The second
    tree (`twin`) is the first one mirrored where m is even and shifted by one where m is odd. So a rank with children
    in one tree is a leaf in the other. With half of the data in each tree, a rank receives and sends at most all data
    once.
    """

    twin: bool = False

    def _position(self, v: int) -> int:
        """Return a rank's position."""
        m = self.size - 1
        if not self.twin or v == 0:
            return v
        return (v - 2) % m + 1 if m % 2 else m + 1 - v

    def _rank(self, position: int) -> int:
        """Return the rank at a position."""
        m = self.size - 1
        if not self.twin or position == 0:
            return position
        return position % m + 1 if m % 2 else m + 1 - position

    def parent(self, v: int) -> int | None:
        """Return the next position up in the in-order tree."""
        if v == 0:
            return None
        position = self._position(v)
        step = position & -position
        left_child = not position & (step << 1) and position + step < self.size
        return self._rank(position + step if left_child else position - step)

    def children(self, v: int) -> list[int]:
        """Return the roots of the subtrees left and right."""
        position = self._position(v)
        half = (position & -position) >> 1 if v else self.size
        left = [position - half] if v and half else []
        behind = min(half, self.size - 1 - position)  # an upper bound of the positions in the right subtree
        right = [position + (1 << behind.bit_length() - 1)] if behind > 0 else []
        return [self._rank(child) for child in left + right]


@register
class TwoTree(TreeAlgorithm):
    """Algorithm `two-tree`."""

    name = "two-tree"
    about = "two binary trees with half of the data each (Sanders, Speck and Träff)"
    rounds = "about n + 3 log P"
    likely = {"reduce": 2, "bcast": 2, "allreduce": 2}

    def trees(self, name: str, size: int, chain_size: int | None = None) -> list[Tree]:
        """Return both trees."""
        self.takes_no_number(name)
        return [InOrder(size), InOrder(size, twin=True)]

    def hops(self, name: str, ranks: int, inside: int) -> Hops:
        """Return two messages for each level, since a chunk waits for two children; each tree has half of the data."""
        nodes = ceil(ranks / inside)
        outer = ceil(log2(nodes))
        return Hops((2 * (ceil(log2(ranks)) - outer), 2 * outer), (0, 1) if nodes > 1 else (1, 0), 1)
