"""Choosing: the algorithm that "auto" takes on a described cluster: the fastest of the model's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from collectives.execution.maker import CHUNK
from collectives.group import Group
from collectives.model import cost
from collectives.model.clusters import Cluster
from collectives.model.predicting import Prediction, predict
from collectives.model.tree_times import crowded
from collectives.schedules import registry
from collectives.schedules.algorithms import Choice, make_schedule, order_for
from collectives.schedules.exchange import ExchangeAlgorithm
from collectives.schedules.schedule import Schedule
from collectives.schedules.tree_steps import TreeSteps
from collectives.tuning import Shape, Table, instead
from scaffe.simulation.closed_forms import CHUNKS

MANY = 64  # ranks from which on events are too many: plain trees and closed forms alone are tried
LONG = CHUNKS[-2:]  # what is tried from `VERY_MANY` ranks on, since a simulation has an event for each message
VERY_MANY = 256


def by_table(table: Table, shape: Shape) -> Callable[[str, int], Choice]:
    """Return a function from a collective and its bytes to what staged collectives take by a table.

    It is for nodes of one rank: on one node a Communicator takes slices of shared memory, which no schedule describes.
    """

    def choose(what: str, nbytes: int) -> Choice:
        choice = table.choose(what, shape, True, nbytes)
        return choice if choice.algorithm != "mpi" else Choice(instead(what, nbytes), CHUNK, choice.why)

    return choose


def chooser(cluster: Cluster, ranks: int, itemsize: int = 4) -> Callable[[str, int], Choice]:
    """Return a function from a collective and its bytes to the fastest algorithm on the cluster, and its chunk."""
    group = cluster.group(ranks)

    def choose(what: str, nbytes: int) -> Choice:
        best = min(_rows(cluster, group, what, nbytes // itemsize, itemsize), key=lambda row: row.seconds)
        return Choice(best.algorithm, best.chunk, f"the model of {cluster.name}")

    return choose


def _rows(cluster: Cluster, group: Group, what: str, elements: int, itemsize: int) -> Iterator[Prediction]:
    """Iterate over the times of each algorithm and chunk."""
    nbytes, is_many = elements * itemsize, group.size >= MANY
    sizes = LONG if group.size >= VERY_MANY else CHUNKS[1:] if is_many else CHUNKS
    for each in registry.algorithms(what):
        for name in each.tried(what, group.size):
            if is_many and isinstance(each, ExchangeAlgorithm):
                one = cost(what, name, cluster, group.size, nbytes, LONG[-1:], itemsize)
                yield Prediction(name, one.chunk, one.seconds)
                continue
            for chunk in [size for size in sizes if size < nbytes] or sizes[:1]:
                cut = max(1, chunk // itemsize)
                order = order_for(name, group)
                schedule = make_schedule(what, name, group.size, elements, chunk=cut, order=order)
                if not is_many or _is_plain(schedule, cluster, group):
                    yield Prediction(name, chunk, predict(schedule, cluster, group=group, itemsize=itemsize))


def _is_plain(schedule: Schedule, cluster: Cluster, group: Group) -> bool:
    """Return whether the schedule is one tree that crowds no link, whose time needs no events."""
    steps = schedule.steps
    return isinstance(steps, TreeSteps) and len(steps.trees) == 1 and not crowded(steps, cluster, group)
