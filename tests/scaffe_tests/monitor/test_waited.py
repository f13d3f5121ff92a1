"""What a net waited for its data: what is counted, and what is said of it."""

from __future__ import annotations

import pytest

from readers import Batch
from scaffe.monitor import waited


class World:
    """Ranks that have waited so long: (waited, reading, transforming, seconds of training) each."""

    def __init__(self, *ranks: tuple[float, float, float, float]):
        self.ranks = ranks

    def allgather(self, _mine):
        return list(self.ranks)


class Net:
    layers = ()


def told(*ranks: tuple[float, float, float, float], threads: int = 2) -> str:
    return waited.describe(World(*ranks), [Net()], 1.0, threads)


def batch(begin: float, middle: float, end: float) -> Batch:
    one = Batch()
    one.seconds = begin, middle, end
    return one


def test_the_first_batch_is_not_counted():
    counted = waited.Waited()
    counted.add(5.0, batch(0, 3, 5), first=True)
    counted.add(1.0, batch(5, 8, 9), first=False)
    counted.add(0.5, batch(9, 0, 11), first=False)
    assert (counted.seconds, counted.reading, counted.transforming) == (1.5, 5.0, 1.0)


def test_who_hardly_waits_gets_a_share_and_no_advice():
    assert told((0.1, 5, 1, 100)) == "0.10% of the time spent waiting for records"


def test_of_several_instances_the_mean_wait_counts():
    class Layer:
        def __init__(self, seconds):
            self.waited = waited.Waited()
            self.waited.add(seconds, batch(0, 3, 5), first=False)

    class Alone:
        def allgather(self, mine):
            return [mine]

    nets = [Net(), Net(), Net()]
    for net, seconds in zip(nets, (1.0, 2.0, 6.0), strict=True):
        net.layers = (Layer(seconds),)
    text = waited.describe(Alone(), nets, 100.0, 1)
    assert text == "3.00% of the time spent waiting for records"


def test_ranks_that_read_nothing_are_told_nothing():
    assert told((0, 0, 0, 100), (0, 0, 0, 100)) == ""


@pytest.mark.parametrize(("reading", "cause"), [(9, "reading and decoding take"), (1, "transforming them takes")])
def test_a_starving_rank_is_named_with_the_cause_and_a_remedy(reading, cause):
    text = told((1, reading, 2, 100), (30, reading, 2, 100))
    assert text.startswith(f"15.50% of the time spent waiting for records (worst, rank 1: 30.00%); {cause}")
    assert "more than 2 reader thread(s), --reader-threads" in text
