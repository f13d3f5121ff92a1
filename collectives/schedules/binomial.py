"""Binomial: half of the ranks send in each round."""

from __future__ import annotations

from collectives.schedules.registry import register
from collectives.schedules.tree_algorithm import TreeAlgorithm
from collectives.schedules.trees import Tree


class Binomial(Tree):
    """The parent is v without its lowest bit: ceil(log2 P) rounds for one chunk (S-Caffe, equation 1)."""

    def parent(self, v: int) -> int | None:
        return v & (v - 1) if v else None

    def children(self, v: int) -> list[int]:
        lowest = v & -v if v else 1 << (self.size - 1).bit_length()
        return [v + (1 << bit) for bit in range(lowest.bit_length() - 1) if v + (1 << bit) < self.size]


@register
class BinomialAlgorithm(TreeAlgorithm):
    name = "binomial"
    about = "in each round half of the ranks that are left send (S-Caffe, equation 1)"
    rounds = "n log P"
    letter = "b"
    tree = Binomial
    likely = {"reduce": 3, "bcast": 3}

    def tried(self, verb: str, ranks: int) -> tuple[str, ...]:
        return () if verb == "allreduce" else (self.name,)
