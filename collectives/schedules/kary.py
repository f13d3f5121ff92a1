"""K-ary tree: a complete tree in which each rank has up to K children."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.errors import AlgorithmError
from collectives.schedules.registry import register
from collectives.schedules.tree_algorithm import TreeAlgorithm, numbers
from collectives.schedules.trees import Tree


@dataclass(frozen=True)
class Kary(Tree):
    """A complete tree in which each rank has up to `degree` children."""

    degree: int = 2

    def parent(self, v: int) -> int | None:
        """Return the parent in a complete tree."""
        return (v - 1) // self.degree if v else None

    def children(self, v: int) -> list[int]:
        """Return up to `degree` consecutive ranks."""
        first = v * self.degree + 1
        return list(range(min(first, self.size), min(first + self.degree, self.size)))


@register
class KaryAlgorithm(TreeAlgorithm):
    """Algorithm `kary-K`, for comparison."""

    name = "kary"
    about = "a complete tree with K children a rank; for comparison"
    rounds = "about K (n + log P / log K)"
    letter = "k"
    tree = Kary

    @property
    def examples(self) -> tuple[str, ...]:
        """Return a name for lists."""
        return ("kary-2",)

    @property
    def samples(self) -> tuple[str, ...]:
        """Return the names for tests."""
        return ("kary", "kary-3")

    def tried(self, verb: str, ranks: int) -> tuple[str, ...]:
        """Return no name: it is for comparison."""
        return ()

    def modelled(self, verb: str) -> tuple[str, ...]:
        """Return the binary tree for a reduce and a broadcast."""
        return () if verb == "allreduce" else ("kary-2",)

    def trees(self, name: str, size: int, chain_size: int | None = None) -> list[Tree]:
        """Return the tree. Raise AlgorithmError for several numbers and for 0."""
        degree = numbers(name)
        if len(degree) > 1 or degree == [0]:
            raise AlgorithmError(f"algorithm '{name}': kary takes one number of children, at least 1")
        return [Kary(size, *degree)]
