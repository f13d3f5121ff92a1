"""Allgather: all ranks get the vector of which each brings its block."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.verbs.verb import Slice, Verb, block_of


class Allgather(Verb):
    """The verb `allgather`."""

    name, title = "allgather", "Allgather"
    summary = "all ranks get the vector of which each brings its block"
    spreads = has_blocks = True

    def contribution(self, rank: int, root: int, bounds: Sequence[int]) -> Slice:
        """Return the rank's block."""
        return block_of(rank, bounds)

    def moved(self, places: int) -> float:
        """Return (P - 1) / P: each rank receives all but its block."""
        return (places - 1) / places

    def touched(self, ranks: int) -> float:
        """Return P + 1: one vector is read, and P are written."""
        return ranks + 1


ALLGATHER = Allgather()
