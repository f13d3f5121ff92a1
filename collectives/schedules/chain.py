"""Chain: each rank adds the next one's data and sends the sum on."""

from __future__ import annotations

from collectives.schedules.registry import register
from collectives.schedules.tree_algorithm import TreeAlgorithm
from collectives.schedules.trees import Tree


class Chain(Tree):
    """Each rank adds the next one's data: (n + P - 2) rounds for n chunks (S-Caffe, equation 2)."""

    def parent(self, v: int) -> int | None:
        return v - 1 if v else None

    def children(self, v: int) -> list[int]:
        return [v + 1] if v + 1 < self.size else []


@register
class ChainAlgorithm(TreeAlgorithm):
    name = "chain"
    about = "each rank adds the next one's data (S-Caffe, equation 2)"
    rounds = "n + P - 2"
    letter = "c"
    tree = Chain
    likely = {"reduce": 0, "bcast": 0, "allreduce": 3}
    between_nodes = ("reduce", "bcast")

    def tabled(self, verb: str, ranks: int) -> tuple[str, ...]:
        return () if verb == "allreduce" else (self.name,)
