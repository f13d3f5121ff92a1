"""Trees over virtual ranks 0 to size - 1, rooted at 0: pure functions of integers.

A reduce goes up a tree, a broadcast goes down the same one. `children` gives the order in which a reduce adds
them, nearest and soonest ready first; a broadcast serves them in the opposite order. Any root and any placement
come from numbering: see `collectives.group`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from collectives.errors import AlgorithmError


@dataclass(frozen=True)
class Tree(ABC):
    """Who adds whose data: `parent(v)` (None for the root, 0) and `children(v)` for each virtual rank v."""

    size: int

    @abstractmethod
    def parent(self, v: int) -> int | None: ...

    @abstractmethod
    def children(self, v: int) -> list[int]: ...

    def levels(self, v: int) -> list[list[int]]:
        """Return v's children level by level of a hierarchy, lowest first; a flat tree has one level."""
        return [self.children(v)]

    def level(self, v: int) -> int:
        """Return the level at which v sends to its parent; the root sends at none."""
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


class Chain(Tree):
    """Each rank adds the next one's data: (n + P - 2) rounds for n chunks (S-Caffe, equation 2)."""

    def parent(self, v: int) -> int | None:
        return v - 1 if v else None

    def children(self, v: int) -> list[int]:
        return [v + 1] if v + 1 < self.size else []


class Binomial(Tree):
    """The parent is v without its lowest bit: ceil(log2 P) rounds for one chunk (S-Caffe, equation 1)."""

    def parent(self, v: int) -> int | None:
        return v & (v - 1) if v else None

    def children(self, v: int) -> list[int]:
        lowest = v & -v if v else 1 << (self.size - 1).bit_length()
        return [v + (1 << bit) for bit in range(lowest.bit_length() - 1) if v + (1 << bit) < self.size]


class Flat(Tree):
    """All ranks send to the root."""

    def parent(self, v: int) -> int | None:
        return 0 if v else None

    def children(self, v: int) -> list[int]:
        return [] if v else list(range(1, self.size))


@dataclass(frozen=True)
class Kary(Tree):
    """A complete tree in which each rank adds up to `degree` others."""

    degree: int = 2

    def parent(self, v: int) -> int | None:
        return (v - 1) // self.degree if v else None

    def children(self, v: int) -> list[int]:
        first = v * self.degree + 1
        return list(range(min(first, self.size), min(first + self.degree, self.size)))


@dataclass(frozen=True)
class Hierarchy(Tree):
    """Groups of `group` neighbouring ranks, each a `lower` tree, whose first ranks form the `upper` tree.

    A group may span nodes (S-Caffe, section 5, figure 7). The upper tree may be a hierarchy itself.
    """

    group: int
    lower: Callable[[int], Tree]
    upper: Tree

    def _lower(self, v: int) -> tuple[int, Tree]:
        """Return the first rank of v's group and the group's tree."""
        leader = v - v % self.group
        return leader, self.lower(min(self.group, self.size - leader))

    def parent(self, v: int) -> int | None:
        leader, lower = self._lower(v)
        inside = lower.parent(v - leader)
        if inside is not None:
            return leader + inside
        above = self.upper.parent(v // self.group)
        return None if above is None else above * self.group

    def levels(self, v: int) -> list[list[int]]:
        leader, lower = self._lower(v)
        inside = [leader + child for child in lower.children(v - leader)]
        if v != leader:
            return [inside]
        return [inside, *([child * self.group for child in level] for level in self.upper.levels(v // self.group))]

    def children(self, v: int) -> list[int]:
        return [child for level in self.levels(v) for child in level]

    def level(self, v: int) -> int:
        return 0 if v % self.group else 1 + self.upper.level(v // self.group)


@dataclass(frozen=True)
class InOrder(Tree):
    """One of the two trees of Sanders, Speck and Traeff (2009): binary, numbered in order, below the root 0.

    The ranks 1 to m = size - 1 stand at positions 1 to m; even positions have children, odd ones are leaves. The
    second tree (`twin`) is the first one mirrored where m is even and shifted by one where m is odd, so that a
    rank with children in one is a leaf in the other. With half of the data in each, every rank receives and sends
    no more than all of it once.
    """

    twin: bool = False

    def _position(self, v: int) -> int:
        m = self.size - 1
        if not self.twin or v == 0:
            return v
        return (v - 2) % m + 1 if m % 2 else m + 1 - v

    def _rank(self, position: int) -> int:
        m = self.size - 1
        if not self.twin or position == 0:
            return position
        return position % m + 1 if m % 2 else m + 1 - position

    def parent(self, v: int) -> int | None:
        if v == 0:
            return None
        position = self._position(v)
        step = position & -position
        left_child = not position & (step << 1) and position + step < self.size
        return self._rank(position + step if left_child else position - step)

    def children(self, v: int) -> list[int]:
        position = self._position(v)
        half = (position & -position) >> 1 if v else self.size
        left = [position - half] if v and half else []
        behind = min(half, self.size - 1 - position)  # how many positions the right subtree has, or more
        right = [position + (1 << behind.bit_length() - 1)] if behind > 0 else []
        return [self._rank(child) for child in left + right]


KINDS: dict[str, Callable[[int], Tree]] = {"chain": Chain, "binomial": Binomial, "flat": Flat, "kary": Kary}
LETTERS = {name[0]: kind for name, kind in KINDS.items()}
NAMES = "chain, binomial, flat, kary-2, two-tree, and hierarchies such as cb-8, cc-8, ccb-8, ccb-8-4"


def make_trees(name: str, size: int, chain_size: int | None = None) -> list[Tree]:
    """Return the trees over which algorithm `name` spreads the data evenly: one, or two for `two-tree`.

    Hierarchies are named by letters, lowest level first (c chain, b binomial, f flat, k binary), and the sizes of
    the groups: `cb-8`, or `cb` with `chain_size=8`. One size serves all levels; `ccb-8-4` gives each its own.
    AlgorithmError for an unknown name and for sizes that make no groups.
    """
    if name == "two-tree":
        return [InOrder(size), InOrder(size, twin=True)]
    base, _, numbers = name.partition("-")
    if numbers and not re.fullmatch(r"\d+(-\d+)*", numbers):
        raise _unknown(name)
    sizes = [int(number) for number in numbers.split("-")] if numbers else []
    if base in KINDS:
        return [_plain(name, size, base, sizes)]
    if len(base) < 2 or not set(base) <= set(LETTERS):
        raise _unknown(name)
    if not sizes and chain_size is not None:
        sizes = [chain_size]
    return [_hierarchy(name, size, base, sizes)]


def _unknown(name: str) -> AlgorithmError:
    return AlgorithmError(f"unknown tree algorithm '{name}'; known are {NAMES}")


def _plain(name: str, size: int, base: str, sizes: list[int]) -> Tree:
    if base != "kary":
        if sizes:
            raise AlgorithmError(f"algorithm '{name}': '{base}' takes no number")
        return KINDS[base](size)
    if len(sizes) > 1 or sizes == [0]:
        raise AlgorithmError(f"algorithm '{name}': kary takes one number of children, at least 1")
    return Kary(size, *sizes)


def _hierarchy(name: str, size: int, letters: str, sizes: list[int]) -> Tree:
    lower = len(letters) - 1
    if len(sizes) not in (1, lower):
        expected = "a chain size" if lower == 1 else f"one chain size or {lower}"
        raise AlgorithmError(f"algorithm '{name}' needs {expected}, as in '{letters}-8' or chain_size=8")
    if min(sizes) < 1:
        raise AlgorithmError(f"algorithm '{name}': chain size {min(sizes)}; it must be at least 1")
    return _compose(size, letters, sizes * (lower if len(sizes) == 1 else 1))


def _compose(size: int, letters: str, sizes: list[int]) -> Tree:
    if not sizes:
        return LETTERS[letters](size)
    upper = _compose(-(-size // sizes[0]), letters[1:], sizes[1:])
    return Hierarchy(size, sizes[0], LETTERS[letters[0]], upper)
