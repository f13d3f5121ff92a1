"""Allreduce: all ranks get the join of all ranks' vectors."""

from __future__ import annotations

from collectives.verbs.verb import Verb


class Allreduce(Verb):
    """The verb `allreduce`: a reduce_scatter, then an allgather."""

    name, title, summary = "allreduce", "Allreduce", "all ranks get the join of all vectors"
    joins = spreads = True

    def moved(self, places: int) -> float:
        """Return 2 (P - 1) / P: each rank's vector is joined, and each gets the join."""
        return 2 * (places - 1) / places

    def touched(self, ranks: int) -> float:
        """Return 2 P: each contribution is read once, P results are written."""
        return 2 * ranks


ALLREDUCE = Allreduce()
