"""The verbs that the MPI library does: they move blocks, and no schedule of ours is faster."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.verbs.verb import NOTHING, Slice, Verb, block_of


class GatherBlocks(Verb):
    """The verb `gather`."""

    name, title, summary = "gather", "Gather", "the root gets the vector of which each rank brings its block"
    has_root = has_blocks = True

    def contribution(self, rank: int, root: int, bounds: Sequence[int]) -> Slice:
        """Return the rank's block."""
        return block_of(rank, bounds)

    def result(self, rank: int, root: int, bounds: Sequence[int]) -> Slice:
        """Return the whole vector on the root."""
        return (0, bounds[-1]) if rank == root else NOTHING

    def moved(self, places: int) -> float:
        """Return (P - 1) / P: the root receives all but its block."""
        return (places - 1) / places

    def touched(self, ranks: int) -> float:
        """Return 2: one vector is read and one written."""
        return 2


class Scatter(Verb):
    """The verb `scatter`."""

    name, title, summary = "scatter", "Scatter", "each rank gets its block of the root's vector"
    has_root = has_blocks = True

    def contribution(self, rank: int, root: int, bounds: Sequence[int]) -> Slice:
        """Return the whole vector on the root."""
        return (0, bounds[-1]) if rank == root else NOTHING

    def result(self, rank: int, root: int, bounds: Sequence[int]) -> Slice:
        """Return the rank's block."""
        return block_of(rank, bounds)

    def moved(self, places: int) -> float:
        """Return (P - 1) / P: the root sends all but its block."""
        return (places - 1) / places

    def touched(self, ranks: int) -> float:
        """Return 2: one vector is read and one written."""
        return 2


class Alltoall(Verb):
    """The verb `alltoall`: a vector of P blocks on each rank, of which block r goes to rank r."""

    name, title, summary = "alltoall", "All-to-All", "rank r gets block r of every rank's vector, in the ranks' order"

    def moved(self, places: int) -> float:
        """Return (P - 1) / P: each rank sends all but its own block."""
        return (places - 1) / places

    def touched(self, ranks: int) -> float:
        """Return 2 P: each vector is read and written once."""
        return 2 * ranks


class Barrier(Verb):
    """The verb `barrier`: no data."""

    name, title, summary = "barrier", "Barrier", "no rank returns before all have come"

    def moved(self, places: int) -> float:
        """Return 0."""
        return 0.0

    def touched(self, ranks: int) -> float:
        """Return 0."""
        return 0.0


GATHER, SCATTER, ALLTOALL, BARRIER = GatherBlocks(), Scatter(), Alltoall(), Barrier()
