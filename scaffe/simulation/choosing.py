"""Choosing: the algorithm that "auto" takes on a described cluster: the fastest of the model's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from collectives.model.clusters import Cluster
from collectives.model.predicting import Prediction, predict
from collectives.schedules import registry
from collectives.schedules.algorithms import Choice, make_schedule, order_for
from collectives.schedules.exchange import ExchangeAlgorithm
from collectives.schedules.tree_algorithm import TreeAlgorithm

MANY = 64  # ranks from which on exchanges are timed by their closed forms, and fewer chunks are tried
CHUNKS = tuple(kib << 10 for kib in (64, 256, 1024, 4096))


def chooser(cluster: Cluster, ranks: int, itemsize: int = 4) -> Callable[[str, int], Choice]:
    """Return a function from a collective and its bytes to the fastest algorithm on the cluster, and its chunk."""

    def choose(what: str, nbytes: int) -> Choice:
        rows = list(_rows(cluster, ranks, what, nbytes, itemsize))
        best = min(rows, key=lambda row: row.seconds)
        return Choice(best.algorithm, best.chunk, f"the model of {cluster.name}")

    return choose


def _rows(cluster: Cluster, ranks: int, what: str, nbytes: int, itemsize: int) -> Iterator[Prediction]:
    elements = nbytes // itemsize
    for each in registry.algorithms(what):
        for name in each.tried(what, ranks):
            if isinstance(each, TreeAlgorithm) or ranks < MANY:
                yield from _timed(cluster, ranks, what, name, elements, itemsize)
            elif isinstance(each, ExchangeAlgorithm) and cluster.ranks_per_node == 1:
                seconds = each.seconds(ranks, nbytes, CHUNKS[-1], cluster.alpha, cluster.beta, cluster.gamma)
                yield Prediction(name, CHUNKS[-1], seconds)


def _timed(cluster: Cluster, ranks: int, what: str, name: str, elements: int, itemsize: int) -> Iterator[Prediction]:
    group = cluster.group(ranks)
    for chunk in [each for each in CHUNKS if each < elements * itemsize] or [CHUNKS[0]]:
        schedule = make_schedule(
            what, name, ranks, elements, chunk=max(1, chunk // itemsize), order=order_for(name, group)
        )
        yield Prediction(name, chunk, predict(schedule, cluster, group=group, itemsize=itemsize))
