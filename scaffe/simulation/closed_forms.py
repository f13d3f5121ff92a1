"""Closed forms of a collective's time, for any number of ranks: how trees and exchanges fill a described cluster.

S-Caffe's equations 1 and 2 and swCaffe's 2 to 6, with the messages within a node apart from those between nodes. A tree
of chunks takes what its busiest rank needs for each further chunk, after the first one has come through all hops.
Tests hold them against the events of 1,024 ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, log2

from collectives.model.clusters import Cluster
from collectives.schedules.ring import ring_time

CHUNKS = tuple(kib << 10 for kib in (64, 256, 1024, 4096))
TREES = "binomial", "chain", "cb-4", "cb-8"
EXCHANGES = "ring", "halving"
S_CAFFE = "binomial", "chain", "cb-4", "cb-8"  # of its section 5


@dataclass(frozen=True)
class CollectiveTime:
    """A collective's seconds, those in which its busiest rank sends or receives, and the algorithm and its chunk."""

    seconds: float
    busy: float
    algorithm: str
    chunk: int


@dataclass(frozen=True)
class ClosedForms:
    """The costs of collectives over `ranks` ranks, which fill node after node. `names`: algorithms to choose from."""

    links: Cluster
    ranks: int
    names: Sequence[str] = TREES + EXCHANGES

    @property
    def inside(self) -> int:
        """Ranks of a node."""
        return min(self.ranks, self.links.ranks_per_node)

    @property
    def nodes(self) -> int:
        """Nodes, the last of which may be filled in part."""
        return ceil(self.ranks / self.inside)

    def cost(self, what: str, nbytes: int) -> CollectiveTime:
        """Return the cost of the fastest algorithm for "reduce", "bcast" or "allreduce"."""
        return _cheapest(self, what, nbytes)

    def costs(self, what: str, nbytes: int) -> Iterator[CollectiveTime]:
        """Iterate over the costs of all algorithms, with all chunks."""
        for name in self.names:
            if name in EXCHANGES and what == "allreduce":
                yield self.exchange(name, nbytes)
            elif name in TREES:
                for chunk in [c for c in CHUNKS if c < nbytes] + [nbytes]:
                    up, down = (self.tree(name, nbytes, chunk, is_up) for is_up in (True, False))
                    both = CollectiveTime(up.seconds + down.seconds, up.busy + down.busy, name, chunk)
                    yield {"reduce": up, "bcast": down, "allreduce": both}[what]

    def tree(self, name: str, nbytes: int, chunk: int, adds: bool) -> CollectiveTime:
        """Return the cost of a tree: `adds` for a reduce, else a broadcast."""
        hops, received, joins = self._shape(name)
        add = self.links.gamma * chunk * adds
        inside = self.links.alpha_in + self.links.beta_in * chunk
        across = self.links.alpha + self.links.beta * chunk
        first = hops[0] * (inside + add) + hops[1] * (across + add)
        each = max(received[0] * inside + received[1] * across, joins * add)
        count = nbytes / chunk
        return CollectiveTime(first + (count - 1) * each, count * each, name, chunk)

    def _shape(self, name: str) -> tuple[tuple[float, float], tuple[float, float], float]:
        """Return a tree's hops and the busiest rank's messages, within a node and between nodes, and its additions."""
        g, nodes, p = self.inside, self.nodes, self.ranks
        if name == "chain":
            return (nodes * (g - 1), nodes - 1), (0, 1) if nodes > 1 else (1, 0), 1
        if name == "kary-2":
            depth, within = ceil(log2(p + 1)) - 1, 0 if nodes > 1 else 1
            sides = (2 * depth * within, 2 * depth * (1 - within))
            return sides, (2 * within, 2 * (1 - within)), 2
        size = min(p, int(name.partition("-")[2] or 1))
        chain = (size - 1, 0) if size <= g else (0, size - 1)
        one = (float(size > 1 and size <= g), float(size > 1 and size > g))
        leaders = ceil(p / size)
        outer = min(ceil(log2(leaders)), ceil(log2(nodes))) if leaders > 1 else 0
        inner = max(0, ceil(log2(leaders)) - outer) if leaders > 1 else 0
        hops = chain[0] + inner, chain[1] + outer
        received = one[0] + inner, one[1] + outer
        return hops, received, sum(received)

    def exchange(self, name: str, nbytes: int) -> CollectiveTime:
        """Return the cost of an allreduce by a ring, or by recursive halving renumbered over supernodes."""
        c, p = self.links, self.ranks
        if p == 1:
            return CollectiveTime(0.0, 0.0, name, nbytes)
        if name == "ring":
            alpha, beta = (c.alpha, c.beta) if self.nodes > 1 else (c.alpha_in, c.beta_in)
            seconds = ring_time(p, nbytes, CHUNKS[-1], alpha, beta, c.gamma)
        else:
            seconds = self._halving(nbytes)
        return CollectiveTime(seconds, seconds, name, CHUNKS[-1])

    def _halving(self, nbytes: int) -> float:
        """Return swCaffe's equations 2, 5 and 6; the ranks of a node share its adapters in rounds between nodes.

        Where the ranks are no power of two, the others fold into them first: all their bytes, once each way.
        """
        c, p = self.links, 1 << (self.ranks.bit_length() - 1)
        per_supernode = (c.nodes_per_supernode or self.nodes) * self.inside
        supernodes = max(1, p // per_supernode)
        shared = max(1.0, self.inside / c.nics)
        crowded = max(shared, self.inside / c.nics * c.oversubscription)
        within_node = min(p, self.inside)
        between = c.beta * (shared * (1 - supernodes / p * within_node) + crowded * (supernodes - 1) / p * within_node)
        at_node = c.beta_in * (within_node - 1) / p
        rounds = log2(within_node) * c.alpha_in + log2(p / within_node) * c.alpha
        one_way = rounds + nbytes * (between + at_node)
        fold = 0.0 if p == self.ranks else 2 * (c.alpha + nbytes * c.beta * shared) + nbytes * c.gamma
        extra = 2 * (nbytes // CHUNKS[-1]) * c.alpha
        return extra + 2 * one_way + (p - 1) / p * nbytes * c.gamma + fold


@cache
def _cheapest(forms: ClosedForms, what: str, nbytes: int) -> CollectiveTime:
    return min(forms.costs(what, nbytes), key=lambda cost: cost.seconds)
