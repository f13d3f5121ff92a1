"""Binomial tree: in each round half of the remaining ranks send."""

from __future__ import annotations

from math import ceil, log2

from collectives.schedules.registry import register
from collectives.schedules.tree_algorithm import Hops, TreeAlgorithm
from collectives.schedules.trees import Tree


class Binomial(Tree):
    """The parent of v is v without its lowest set bit: ceil(log2 P) rounds for one chunk (S-Caffe, equation 1)."""

    def parent(self, v: int) -> int | None:
        """Return v without its lowest set bit."""
        return v & (v - 1) if v else None

    def children(self, v: int) -> list[int]:
        """Return v plus each power of two below its lowest set bit, nearest first."""
        lowest = v & -v if v else 1 << (self.size - 1).bit_length()
        return [v + (1 << bit) for bit in range(lowest.bit_length() - 1) if v + (1 << bit) < self.size]


@register
class BinomialAlgorithm(TreeAlgorithm):
    """Algorithm `binomial`."""

    name = "binomial"
    about = "in each round half of the ranks that are left send (S-Caffe, equation 1)"
    rounds = "n log P"
    letter = "b"
    tree = Binomial
    likely = {"reduce": 3, "bcast": 3}

    def tried(self, verb: str, ranks: int) -> tuple[str, ...]:
        """Return the name; an allreduce by it is never the fastest."""
        return () if verb == "allreduce" else (self.name,)

    def hops(self, name: str, ranks: int, inside: int) -> Hops:
        """Return a message for each round, all of which the root receives."""
        outer = ceil(log2(ceil(ranks / inside)))
        rounds = ceil(log2(ranks)) - outer, outer
        return Hops(rounds, rounds, sum(rounds))
