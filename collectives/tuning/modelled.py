"""The table of the model: what "auto" does where nothing was measured, predicted for plain machines.

`python -m collectives.tune --from-model ethernet infiniband --out FILE` writes it. The registry names the algorithms
(`Algorithm.tabled`). Trees are timed by the schedule itself; exchanges, work inside a node and the MPI library's own
collectives by closed forms. Python's time per message counts against our algorithms and not against the library's.
Below LEAST bytes, a reduce or a broadcast between nodes below LEAST_BETWEEN, latencies decide, which descriptions don't
give: there the library keeps its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import log2

from collectives.errors import ArgumentError
from collectives.model.clusters import Cluster, find_cluster
from collectives.model.formulas import best_chain_chunk, binomial_time
from collectives.model.tree_times import TreeTimes, crowded
from collectives.schedules import registry
from collectives.schedules.algorithms import make_schedule
from collectives.schedules.exchange import ExchangeAlgorithm
from collectives.schedules.tree_algorithm import TreeAlgorithm
from collectives.schedules.tree_steps import TreeSteps
from collectives.tuning.choosing import LIBRARY, Candidate, Seconds, rows
from collectives.tuning.table import FABRIC, TCP, Row, Shape
from collectives.verbs import ALLREDUCE, BCAST, SCHEDULED

NODES = (2, 4, 8, 32, 128, 1024)
RANKS = (1, 2, 4, 8)
LEAST, LEAST_BETWEEN, MOST = 256 << 10, 64 << 10, 64 << 20  # bytes
CHUNKS = tuple(kib << 10 for kib in (8, 16, 32, 60, 128, 256, 512, 1024))
STEP = 10e-6  # seconds of Python per message: 2.5 to 11 us were measured
BOTH_WAYS = 2.0  # how many times longer two ranks of a node take to copy from each other at the same time
FLAT = 1024  # the most ranks for which a tree over all of them is predicted


def model_rows(clusters: Sequence[str]) -> list[Row]:
    """Return the rows for the described clusters.

    Raise CollectiveError for an unknown cluster, ArgumentError for one without the speed of memory.
    """
    places: dict[Shape, Cluster] = {}
    for cluster in map(find_cluster, clusters):
        places = dict.fromkeys(shapes(cluster), cluster) | places
    return [row for shape, cluster in places.items() for row in shape_rows(cluster, shape)]


def shapes(cluster: Cluster) -> list[Shape]:
    """Return the shapes for which a cluster's table has rows."""
    if not cluster.memory:
        raise ArgumentError(f"cluster '{cluster.name}' has no speed of its nodes' memory; ethernet has")
    network = TCP if cluster.eager else FABRIC
    return [Shape(1, ranks) for ranks in RANKS[1:]] + [
        Shape(nodes, ranks, network) for nodes in NODES for ranks in RANKS
    ]


def shape_rows(cluster: Cluster, shape: Shape) -> list[Row]:
    """Return the rows for one shape of a job on a cluster."""
    found = []
    for op in SCHEDULED:
        sizes = _sizes(op, shape.nodes)
        for shared in (True, False):
            places = {n: ModelledTimes(cluster, shape, shared, op, n) for n in sizes}
            seconds = {n: place.seconds() for n, place in places.items()}
            found += rows(op, shape, shared, seconds, f"the model of {cluster.name}")
    return found


class ModelledTimes:
    """The predicted seconds of all candidates for one collective, shape, kind of memory and number of bytes."""

    def __init__(self, cluster: Cluster, shape: Shape, shared: bool, op: str, n: int):
        """Take the cluster with the shape's ranks per node, and the same with Python's time per message."""
        self.cluster = replace(cluster, ranks_per_node=max(shape.ranks, 1))
        self.nodes, self.ranks, self.op, self.n, self.shared = shape.nodes, shape.ranks, op, n, shared
        self.ours = replace(self.cluster, alpha=cluster.alpha + STEP, alpha_in=cluster.alpha_in + STEP)

    def seconds(self) -> Seconds:
        """Return the seconds of the MPI library and of our candidates, simple ones first."""
        found = {LIBRARY: self._library()}
        if self.nodes == 1:
            cached = self.n * self.ranks < self.cluster.cache
            return found if cached and not self.shared else found | {Candidate("slices"): self._slices()}
        size = self.nodes * self.ranks
        if size <= FLAT:
            found |= self._between(self.ours, size, self.n)
        if self.ranks > 1:
            # Each rank carries a slice and all share the adapters: the same as a slower adapter for each rank.
            share = max(1.0, self.ranks / self.cluster.nics)
            alone = replace(self.ours, ranks_per_node=1, beta=self.cluster.beta * share)
            among = self._between(alone, self.nodes, self.n // self.ranks).items()
            inside = self.cluster.sync + self._slices()
            found |= {Candidate(f"leaders-{name}", chunk): inside + time for (name, chunk), time in among}
        return found

    def _slices(self) -> float:
        """Return the seconds of `slices`: what each rank reads and writes, by all cores together."""
        ranks, c = self.ranks, self.cluster
        verb = SCHEDULED[self.op]
        passes = verb.touched(ranks) if verb.joins else 2 * (ranks - 1)  # all but one rank read, and write
        return c.sync + self.n * passes * c.memory * (1 if self.shared else c.foreign)

    def _between(self, cluster: Cluster, size: int, n: int) -> dict[Candidate, float]:
        """Return the seconds of our schedules over `size` ranks of a cluster and n bytes."""
        found: dict[Candidate, float] = {}
        for each in registry.algorithms(self.op):
            timed = self._exchange if isinstance(each, ExchangeAlgorithm) else self._tree
            for name in each.tabled(self.op, size):
                chunk, time = timed(name, cluster, size, n)
                found |= {Candidate(name, chunk): time} if time else {}
        return found

    def _exchange(self, name: str, cluster: Cluster, size: int, n: int) -> tuple[int, float]:
        """Return the chunk and the seconds of an exchange; 0 where its ranks would crowd the links of their node."""
        each, chunk = registry.find(name), self._chunk(1 << 20)
        assert isinstance(each, ExchangeAlgorithm)
        if cluster.ranks_per_node > 1 and not each.neighbours:
            return chunk, 0.0
        return chunk, each.seconds(self.op, size, n, chunk, cluster.alpha, cluster.beta, cluster.gamma)

    def _tree(self, name: str, cluster: Cluster, size: int, n: int) -> tuple[int, float]:
        """Return the chunk and the seconds of a schedule over one tree."""
        each = registry.find(name)
        assert isinstance(each, TreeAlgorithm)
        chunk = self._chunk(best_chain_chunk(each.path(name, size), n, cluster.alpha, cluster.beta + cluster.gamma))
        return chunk, _tree(self.op, name, size, n, chunk, cluster)

    def _chunk(self, best: float) -> int:
        """Return the chunk nearest to `best` that the network sends eagerly."""
        able = [chunk for chunk in CHUNKS if chunk <= (self.cluster.eager or CHUNKS[-1])]
        return min(able, key=lambda chunk: abs(log2(chunk / best)))

    def _library(self) -> float:
        """Return the seconds of the MPI library: the best of textbook algorithms that send messages whole."""
        n, c, size = self.n, self.cluster, self.nodes * self.ranks

        def tree(gamma: float, two_way: float = 1.0, two_way_in: float = 1.0) -> float:
            rounds = binomial_time(self.nodes, c.alpha + n * (c.beta * two_way + gamma))
            return rounds + binomial_time(self.ranks, c.alpha_in + n * (c.beta_in * two_way_in + gamma))

        verb = SCHEDULED[self.op]
        if not verb.spreads and verb.has_root:
            return tree(c.gamma)
        link = c if self.nodes > 1 else replace(c, alpha=c.alpha_in, beta=c.beta_in, two_way=BOTH_WAYS)
        way = ALLREDUCE if verb is BCAST else verb  # a broadcast is a scatter and an allgather
        ring = registry.find("ring")
        assert isinstance(ring, ExchangeAlgorithm)
        exchange = ring.seconds(
            way.name, size, n, n, link.alpha, link.beta * link.two_way, c.gamma if verb.joins else 0.0
        )
        if verb.has_blocks:
            return exchange
        return min(tree(0.0) if verb is BCAST else tree(c.gamma, c.two_way, BOTH_WAYS), exchange)


@cache
def _tree(op: str, name: str, size: int, n: int, chunk: int, cluster: Cluster) -> float:
    """Return the seconds of a schedule over one tree; 0 where it crowds links, which takes long to simulate."""
    plan, group = make_schedule(op, name, size, n // 4, chunk=chunk // 4).steps, cluster.group(size)
    if not isinstance(plan, TreeSteps) or crowded(plan, cluster, group):
        return 0.0
    return TreeTimes(plan, cluster, group, 4).finish()


def _sizes(op: str, nodes: int) -> list[int]:
    """Return the sizes of the table, each twice, or between nodes four times, the one before."""
    found = [LEAST_BETWEEN if nodes > 1 and SCHEDULED[op].has_root else LEAST]
    while found[-1] * (by := 2 if nodes == 1 else 4) <= MOST:
        found.append(found[-1] * by)
    return found
