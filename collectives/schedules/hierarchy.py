"""Hierarchies: groups of neighbouring ranks below a tree of their first ranks, as S-Caffe's cb-8 and ccb-8.

A name has the letters of the trees, lowest level first (c chain, b binomial, f flat, k binary), and the sizes of the
groups: `cb-8`. One size serves all levels; `ccb-8-4` gives each level its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log2

from collectives.errors import AlgorithmError
from collectives.schedules.registry import algorithms, register
from collectives.schedules.tree_algorithm import Hops, TreeAlgorithm, numbers
from collectives.schedules.trees import Tree


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
        """Return the parent in the group, or the group's parent."""
        leader, lower = self._lower(v)
        inside = lower.parent(v - leader)
        if inside is not None:
            return leader + inside
        above = self.upper.parent(v // self.group)
        return None if above is None else above * self.group

    def levels(self, v: int) -> list[list[int]]:
        """Return the children in the group, then those of each level above."""
        leader, lower = self._lower(v)
        inside = [leader + child for child in lower.children(v - leader)]
        if v != leader:
            return [inside]
        return [inside, *([child * self.group for child in level] for level in self.upper.levels(v // self.group))]

    def children(self, v: int) -> list[int]:
        """Return the children of all levels, lowest first."""
        return [child for level in self.levels(v) for child in level]

    def level(self, v: int) -> int:
        """Return 0 inside a group, else the level in the tree above."""
        return 0 if v % self.group else 1 + self.upper.level(v // self.group)


@register
class HierarchyAlgorithm(TreeAlgorithm):
    """Algorithms `cb-8`, `cc-8`, `ccb-8` and all other hierarchies."""

    name = "hierarchy"
    about = "groups of that many ranks, each a chain (c), below a binomial tree (b) or a chain (S-Caffe, section 5)"
    rounds = "of `cb-8`: n (1 + log (P / 8)) + 6"
    likely = {"reduce": 1, "bcast": 1}

    @property
    def examples(self) -> tuple[str, ...]:
        """Return names for lists."""
        return ("cb-8", "cc-8", "ccb-8", "ccb-8-4")

    @property
    def samples(self) -> tuple[str, ...]:
        """Return the names for tests."""
        return ("cb-8", "cc-3", "ccb-2", "bb-4", "kb-5", "bf-4", "ccb-3-2")

    def takes(self, name: str) -> bool:
        """Return whether `name` has two or more letters of trees, and numbers."""
        base = name.partition("-")[0]
        return len(base) > 1 and set(base) <= _letters().keys() and self.is_numbered(name, base)

    def tried(self, verb: str, ranks: int) -> tuple[str, ...]:
        """Return groups of 4 and 8, if there are more ranks than one group holds."""
        return () if verb == "allreduce" else tuple(f"cb-{size}" for size in (4, 8) if size < ranks)

    def modelled(self, verb: str) -> tuple[str, ...]:
        """Return the hierarchies of S-Caffe's figures."""
        return ("cb-8", "cc-8") if verb == "allreduce" else ("cb-4", "cb-8", "cb-16", "cc-8", "cc-16", "ccb-8")

    def tabled(self, verb: str, ranks: int) -> tuple[str, ...]:
        """Return `cb-8` for a reduce and a broadcast over more than one group."""
        return ("cb-8",) if verb != "allreduce" and ranks > 8 else ()

    def hops(self, name: str, ranks: int, inside: int) -> Hops | None:
        """Return those of `cb-N`: along a chain, then up the binomial tree of the chains' first ranks."""
        if name.partition("-")[0] != "cb":
            return None
        size = min(ranks, numbers(name)[0])
        leaders, nodes, has_inside = ceil(ranks / size), ceil(ranks / inside), size <= inside
        outer = min(ceil(log2(leaders)), ceil(log2(nodes)))
        rounds = ceil(log2(leaders)) - outer, outer
        last = (size > 1) * has_inside, (size > 1) * (not has_inside)
        path = rounds[0] + (size - 1) * has_inside, rounds[1] + (size - 1) * (not has_inside)
        return Hops(path, (rounds[0] + last[0], rounds[1] + last[1]), sum(rounds) + sum(last))

    def trees(self, name: str, size: int, chain_size: int | None = None) -> list[Tree]:
        """Return the tree. Raise AlgorithmError for sizes that don't match its levels."""
        sizes = numbers(name) or ([] if chain_size is None else [chain_size])
        return [_hierarchy(name, size, name.partition("-")[0], sizes)]


def _letters() -> dict[str, Callable[[int], Tree]]:
    """Return the trees by letter. Raise ValueError for a letter that two trees have."""
    found = [each for each in algorithms() if isinstance(each, TreeAlgorithm) and each.letter]
    letters = {each.letter: type(each).tree for each in found}
    if len(letters) < len(found):
        raise ValueError(f"two trees have one letter: {', '.join(f'{each.letter} {each.name}' for each in found)}")
    return letters


def _hierarchy(name: str, size: int, letters: str, sizes: list[int]) -> Tree:
    """Return the tree of the letters and sizes. Raise AlgorithmError where these don't match."""
    lower = len(letters) - 1
    if len(sizes) not in (1, lower):
        expected = "a chain size" if lower == 1 else f"one chain size or {lower}"
        raise AlgorithmError(f"algorithm '{name}' needs {expected}, as in '{letters}-8' or chain_size=8")
    if min(sizes) < 1:
        raise AlgorithmError(f"algorithm '{name}': chain size {min(sizes)}; it must be at least 1")
    return _compose(size, letters, sizes * (lower if len(sizes) == 1 else 1))


def _compose(size: int, letters: str, sizes: list[int]) -> Tree:
    """Return the tree of these letters, lowest level first."""
    if not sizes:
        return _letters()[letters](size)
    upper = _compose(-(-size // sizes[0]), letters[1:], sizes[1:])
    return Hierarchy(size, sizes[0], _letters()[letters[0]], upper)
