"""Reduce: the root gets the join of all ranks' vectors."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.verbs.verb import NOTHING, Slice, Verb


class Reduce(Verb):
    """The verb `reduce`."""

    name, title, summary = "reduce", "Reduce", "the root gets the join of all vectors"
    has_root = joins = True

    def result(self, rank: int, root: int, bounds: Sequence[int]) -> Slice:
        """Return the whole vector on the root."""
        return (0, bounds[-1]) if rank == root else NOTHING

    def moved(self, places: int) -> float:
        """Return 1: the root receives a vector."""
        return float(places > 1)

    def touched(self, ranks: int) -> float:
        """Return P + 1: each contribution is read once, one result is written."""
        return ranks + 1


REDUCE = Reduce()
