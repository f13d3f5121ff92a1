"""Reduce_scatter: each rank gets its block of the join of all ranks' vectors."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.verbs.verb import Slice, Verb, block_of


class ReduceScatter(Verb):
    """The verb `reduce_scatter`."""

    name, title = "reduce_scatter", "Reduce_scatter"
    summary = "each rank gets its block of the join of all vectors"
    joins = has_blocks = True

    def result(self, rank: int, root: int, bounds: Sequence[int]) -> Slice:
        """Return the rank's block."""
        return block_of(rank, bounds)

    def moved(self, places: int) -> float:
        """Return (P - 1) / P: each rank sends all but its block."""
        return (places - 1) / places

    def touched(self, ranks: int) -> float:
        """Return P + 1: each contribution is read once, one result is written, by all ranks together."""
        return ranks + 1


REDUCE_SCATTER = ReduceScatter()
