"""Test passes divided over the instances of all ranks, with the same results as on one.

SingleCaffe section IV divides the test phase over its workers in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np

from scaffe.monitor.record import TEST
from scaffe.net.net import Net
from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.team import Team
from scaffe.parallel.world import World

T = TypeVar("T")
Score = Callable[[Sequence[np.ndarray]], float]


class BatchResult(NamedTuple):
    """The number of a test batch, its loss, and the net's outputs by name, flat, float64."""

    number: int
    loss: float
    outputs: dict[str, np.ndarray]


def batch_numbers(
    instance: int, total: int, iterations: int, first_test: Callable[[], int] = int
) -> Callable[[], Iterator[int]]:
    """Return a function that iterates over the batches that an instance reads, for its test net's Context.

    `instance` is its number among the `total` instances of all ranks. A test has `iterations` batches, of which the
    instance runs instance, instance + total, ..., each whole, so that a net whose batch can't be divided can be tested
    too. `first_test()` returns the number of tests already done when reading starts.
    """

    def numbers() -> Iterator[int]:
        for test in count(first_test()):
            for i in range(instance, iterations, total):
                yield test * iterations + i

    return numbers


def run_each(
    nets: Sequence[Net], crew: Crew | None, numbers: Sequence[Iterable[int]], forward: Callable[[Net, int], T]
) -> list[T]:
    """Return forward(net, number) of each batch, in order of the numbers; the instances run theirs at the same time.

    `nets` holds a net for each instance, `numbers` the numbers of each instance's batches; `crew` is None for a single
    instance. Layers that draw random numbers draw those of the batch. An error in one instance ends the work of all.
    """
    first = nets[0].context.batch_number
    found: list[tuple[int, T]] = []

    def work(instance: int) -> None:
        net = nets[instance]
        for number in numbers[instance]:
            if crew is not None:
                crew.check()
            net.context.batch_number = first + number
            found.append((number, forward(net, number)))
        net.context.batch_number = first

    work(0) if crew is None else crew.run(work)
    return [result for _, result in sorted(found, key=itemgetter(0))]


@np.errstate(all="ignore")
def run_batches(nets: Sequence[Net], iterations: int, world: World, team: Team) -> list[BatchResult]:
    """Run `iterations` batches, divided over the instances of all ranks; return all results, in order, on all ranks.

    `nets` holds a net for each instance of this rank, of which team.build has made each in its thread. Collective.
    """

    def forward(net: Net, number: int) -> BatchResult:
        for group in net.groups():
            if team.crew is not None:
                team.crew.check()
            world.record.at(TEST, group[0])
            net.engine.forward(net, group)
        return BatchResult(
            number, net.loss(), {name: net.blobs[name].data.astype(np.float64).reshape(-1) for name in net.outputs}
        )

    shares = [range(team.first + i, iterations, team.total) for i in range(team.size)]
    with team.at_work(TEST), team.keep_forms():
        mine = run_each(nets, team.crew, shares, forward)
    for net in nets:
        net.context.batch_number += iterations
    return sorted((batch for part in world.allgather(mine) for batch in part), key=attrgetter("number"))


def means(batches: list[BatchResult], scores: Mapping[str, Score] = MappingProxyType({})) -> BatchResult:
    """Return the mean loss and outputs, summed in order: the same bits on any number of ranks and instances.

    An output with a function in `scores` has its value, given the output of all batches, in place of the mean.
    """
    count = len(batches)
    outputs = {}
    for name in batches[0].outputs:
        values = [batch.outputs[name] for batch in batches]
        outputs[name] = np.atleast_1d(scores[name](values)) if name in scores else np.sum(values, 0) / count
    return BatchResult(count, sum(batch.loss for batch in batches) / count, outputs)
