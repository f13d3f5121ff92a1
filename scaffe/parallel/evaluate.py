"""Test passes divided over the ranks, with the same results as on one rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

import numpy as np

from scaffe.monitor.record import TEST
from scaffe.net import Net
from scaffe.parallel.world import World


class BatchResult(NamedTuple):
    """The number of a test batch, its loss, and the net's outputs by name, flat, float64."""

    number: int
    loss: float
    outputs: dict[str, np.ndarray]


def batch_numbers(world: World, iterations: int, first_test: Callable[[], int] = int) -> Callable[[], Iterator[int]]:
    """Return a function that iterates over the batches that this rank reads, for a test net's Context.

    A test has `iterations` batches, of which rank r runs r, r + size, ..., each whole, so that a net whose batch can't
    be divided can be tested too. `first_test()` returns the number of tests already done when reading starts.
    """

    def numbers() -> Iterator[int]:
        for test in count(first_test()):
            for i in range(world.rank, iterations, world.size):
                yield test * iterations + i

    return numbers


@np.errstate(all="ignore")
def run_batches(net: Net, iterations: int, world: World) -> list[BatchResult]:
    """Run `iterations` batches, divided over the ranks; return all results, in order, on all ranks. Collective."""
    mine = []
    for number in range(world.rank, iterations, world.size):
        for group in net.engine.groups(net):
            world.record.at(TEST, group[0])
            net.engine.forward(net, group)
        net.context.batch_number += 1
        outputs = {name: net.blobs[name].data.astype(np.float64).reshape(-1) for name in net.outputs}
        mine.append(BatchResult(number, net.loss(), outputs))
    return sorted((batch for part in world.allgather(mine) for batch in part), key=lambda batch: batch.number)


def means(batches: list[BatchResult]) -> BatchResult:
    """Return the mean loss and outputs, summed in order: the same bits on any number of ranks."""
    count = len(batches)
    outputs = {name: np.sum([batch.outputs[name] for batch in batches], 0) / count for name in batches[0].outputs}
    return BatchResult(count, sum(batch.loss for batch in batches) / count, outputs)
