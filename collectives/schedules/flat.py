"""Flat tree: the root adds every rank's data itself."""

from __future__ import annotations

from collectives.schedules.registry import register
from collectives.schedules.tree_algorithm import TreeAlgorithm
from collectives.schedules.trees import Tree


class Flat(Tree):
    """All ranks send to the root."""

    def parent(self, v: int) -> int | None:
        """Return the root."""
        return 0 if v else None

    def children(self, v: int) -> list[int]:
        """Return all other ranks at the root."""
        return [] if v else list(range(1, self.size))


@register
class FlatAlgorithm(TreeAlgorithm):
    """Algorithm `flat`, for comparison."""

    name = "flat"
    about = "all ranks send to the root; for comparison"
    rounds = "n (P - 1)"
    letter = "f"
    tree = Flat

    def tried(self, verb: str, ranks: int) -> tuple[str, ...]:
        """Return no name: it is for comparison."""
        return ()

    def modelled(self, verb: str) -> tuple[str, ...]:
        """Return no name: it is for comparison."""
        return ()
