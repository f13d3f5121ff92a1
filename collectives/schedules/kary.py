"""Kary: a complete tree in which each rank has up to K children."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.errors import AlgorithmError
from collectives.schedules.registry import register
from collectives.schedules.tree_algorithm import TreeAlgorithm, numbers
from collectives.schedules.trees import Tree


@dataclass(frozen=True)
class Kary(Tree):
    """A complete tree in which each rank adds up to `degree` others."""

    degree: int = 2

    def parent(self, v: int) -> int | None:
        return (v - 1) // self.degree if v else None

    def children(self, v: int) -> list[int]:
        first = v * self.degree + 1
        return list(range(min(first, self.size), min(first + self.degree, self.size)))


@register
class KaryAlgorithm(TreeAlgorithm):
    name = "kary"
    about = "a complete tree with K children a rank; to compare with"
    rounds = "about K (n + log P / log K)"
    letter = "k"
    tree = Kary

    @property
    def examples(self) -> tuple[str, ...]:
        return ("kary-2",)

    @property
    def samples(self) -> tuple[str, ...]:
        return ("kary", "kary-3")

    def tried(self, verb: str, ranks: int) -> tuple[str, ...]:
        return ()

    def modelled(self, verb: str) -> tuple[str, ...]:
        return () if verb == "allreduce" else ("kary-2",)

    def trees(self, name: str, size: int, chain_size: int | None = None) -> list[Tree]:
        degree = numbers(name)
        if len(degree) > 1 or degree == [0]:
            raise AlgorithmError(f"algorithm '{name}': kary takes one number of children, at least 1")
        return [Kary(size, *degree)]
