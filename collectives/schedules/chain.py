"""Chain: each rank adds its data to the next rank's and sends the sum on."""

from __future__ import annotations

from math import ceil

from collectives.schedules.registry import register
from collectives.schedules.tree_algorithm import Hops, TreeAlgorithm
from collectives.schedules.trees import Tree


class Chain(Tree):
    """A chain of ranks: n + P - 2 rounds for n chunks (S-Caffe, equation 2)."""

    def parent(self, v: int) -> int | None:
        """Return the rank before."""
        return v - 1 if v else None

    def children(self, v: int) -> list[int]:
        """Return the rank after."""
        return [v + 1] if v + 1 < self.size else []


@register
class ChainAlgorithm(TreeAlgorithm):
    """Algorithm `chain`."""

    name = "chain"
    about = "each rank adds the next one's data (S-Caffe, equation 2)"
    rounds = "n + P - 2"
    letter = "c"
    tree = Chain
    likely = {"reduce": 0, "bcast": 0, "allreduce": 3}
    between_nodes = ("reduce", "bcast")
    neighbours = True

    def tabled(self, verb: str, ranks: int) -> tuple[str, ...]:
        """Return the name for a reduce and a broadcast."""
        return () if verb == "allreduce" else (self.name,)

    def hops(self, name: str, ranks: int, inside: int) -> Hops:
        """Return one message to each rank after the first."""
        nodes = ceil(ranks / inside)
        return Hops((nodes * (inside - 1), nodes - 1), (0, 1) if nodes > 1 else (1, 0), 1)
