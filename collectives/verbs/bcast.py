"""Bcast: all ranks get the root's vector."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.verbs.verb import NOTHING, Slice, Verb


class Bcast(Verb):
    """The verb `bcast`."""

    name, title, summary = "bcast", "Broadcast", "all ranks get the root's vector"
    has_root = spreads = True

    def contribution(self, rank: int, root: int, bounds: Sequence[int]) -> Slice:
        """Return the whole vector on the root."""
        return (0, bounds[-1]) if rank == root else NOTHING

    def moved(self, places: int) -> float:
        """Return 1: each other rank receives a vector."""
        return float(places > 1)

    def touched(self, ranks: int) -> float:
        """Return P: the root's data is read once, other ranks may find it in a shared cache, and P - 1 are written."""
        return ranks


BCAST = Bcast()
