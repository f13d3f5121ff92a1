"""The table of the model: what "auto" does where nothing was measured, predicted for plain machines.

`python -m collectives.tune --from-model ethernet infiniband --out FILE` writes it. The registry names the algorithms
(`Algorithm.tabled`). Schedules, and the MPI library's own collectives, have the costs of `collectives.model.cost`, work
inside a node a closed form. Python's time per message counts against our algorithms and not against the library's.
Below LEAST bytes, a reduce or a broadcast between nodes below LEAST_BETWEEN, latencies decide, which descriptions don't
give: there the library keeps its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from collectives.errors import ArgumentError
from collectives.model import cost
from collectives.model.clusters import Cluster, find_cluster
from collectives.schedules import registry
from collectives.tuning.choosing import LIBRARY, Candidate, Seconds, rows
from collectives.tuning.table import FABRIC, TCP, Row, Shape
from collectives.verbs import ALLREDUCE, BCAST, REDUCE, SCHEDULED, Verb

NODES = (2, 4, 8, 32, 128, 1024)
RANKS = (1, 2, 4, 8)
LEAST, LEAST_BETWEEN, MOST = 256 << 10, 64 << 10, 64 << 20  # bytes
CHUNKS = tuple(kib << 10 for kib in (8, 16, 32, 60, 128, 256, 512, 1024))
STEP = 10e-6  # seconds of Python per message: 2.5 to 11 us were measured
BOTH_WAYS = 2.0  # how many times longer two ranks of a node take to copy from each other at the same time
CROSSING = 1.05  # how many times longer messages take that meet in switches, as those to neighbours don't
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
            among = self._between(self.ours.of_nodes(self.ranks), self.nodes, self.n // self.ranks).items()
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
        """Return the seconds of our schedules over `size` ranks of a cluster and n bytes.

        Where a node has several ranks, those alone that crowd its links no more than one rank does.
        """
        able, found = [chunk for chunk in CHUNKS if chunk <= (cluster.eager or CHUNKS[-1])], {}
        for each in registry.algorithms(self.op):
            for name in each.tabled(self.op, size) if each.neighbours or cluster.ranks_per_node == 1 else ():
                one = cost(self.op, name, cluster, size, n, able)
                found[Candidate(name, one.chunk)] = one.seconds * (1 if each.neighbours else CROSSING)
        return found

    def _library(self) -> float:
        """Return the seconds of the MPI library: by whole messages over a tree, or a ring."""
        n, c, verb = self.n, self.cluster, SCHEDULED[self.op]

        def time(what: Verb, name: str, links: Cluster, chunks: Sequence[int] = (n,)) -> float:
            return cost(what.name, name, links, self.nodes * self.ranks, n, chunks).seconds

        if verb is REDUCE:
            return time(REDUCE, "binomial", c)
        way, some = (BOTH_WAYS, [n]) if self.nodes == 1 else (c.two_way, CHUNKS)
        alpha, beta = c.between(self.nodes * self.ranks)
        ring = replace(c, ranks_per_node=1, alpha=alpha, beta=beta * way)
        exchange = time(ALLREDUCE if verb is BCAST else verb, "ring", replace(ring, gamma=c.gamma * verb.joins), some)
        if verb.has_blocks:
            return exchange
        both = replace(c, beta=c.beta * c.two_way, beta_in=c.beta_in * BOTH_WAYS)
        tree = time(BCAST, "binomial", c) if verb is BCAST else time(REDUCE, "binomial", both)
        return min(tree, exchange)


def _sizes(op: str, nodes: int) -> list[int]:
    """Return the sizes of the table, each twice, or between nodes four times, the one before."""
    found = [LEAST_BETWEEN if nodes > 1 and SCHEDULED[op].has_root else LEAST]
    while found[-1] * (by := 2 if nodes == 1 else 4) <= MOST:
        found.append(found[-1] * by)
    return found
