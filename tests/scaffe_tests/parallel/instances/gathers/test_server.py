from __future__ import annotations

import numpy as np
import pytest
from interleavings import Interleaving

from scaffe.parallel.instances.gathers.gather import Addition, Gather
from scaffe.parallel.instances.gathers.server import ServerGather

pytestmark = pytest.mark.mpi_skip


def one_by_one(gather: Gather, instances: list[int]) -> list[Addition]:
    """Return the additions to bucket 0 where each is complete before the next instance comes."""
    done: list[Addition] = []
    for instance in instances:
        due = gather.give(instance, 0)
        while due:
            done.append(due.pop(0))
            due += gather.added(done[-1])
    return done


def test_the_first_instance_has_the_sum_until_a_lower_number_comes() -> None:
    done = one_by_one(ServerGather([0] * 5, [10]), [3, 4, 1, 0, 2])
    assert [one.sources for one in done] == [(3, 4), (1, 3), (0, 1), (0, 2)]
    assert [one.target for one in done] == [3, 1, 0, 0]


def test_the_thread_that_adds_takes_what_came_meanwhile() -> None:
    gather = ServerGather([0] * 5, [10])
    assert gather.give(2, 0) == []
    [first] = gather.give(4, 0)
    assert first.sources == (2, 4)
    assert gather.give(3, 0) == gather.give(1, 0) == []  # no thread waits
    [second] = gather.added(first)
    assert second.sources == (1, 2, 3)
    assert gather.added(second) == [] and not gather.is_complete
    [third] = gather.give(0, 0)
    assert third.sources == (0, 1)
    assert gather.added(third) == [] and gather.is_complete
    assert first.moved + second.moved + third.moved == 10 * (5 + 2 * 3 - 1)  # with 3 additions of 5 gradients


@pytest.mark.parametrize("size", [2, 3, 8, 56])
def test_at_most_3_n_minus_3_passes_over_the_buffer(size: int) -> None:
    order = np.random.default_rng(size).permutation(size).tolist()
    assert sum(one.moved for one in one_by_one(ServerGather([0] * size, [10]), order)) == 10 * (3 * size - 3)


def test_deterministic_gradients_wait_for_their_turn() -> None:
    gather = ServerGather([0] * 5, [10], deterministic=True)
    assert gather.give(2, 0) == gather.give(0, 0) == []  # 1 is next
    [first] = gather.give(1, 0)
    assert first.sources == (0, 1, 2)
    assert gather.give(4, 0) == gather.added(first) == []
    [second] = gather.give(3, 0)
    assert second.sources == (0, 3, 4)
    assert gather.added(second) == [] and gather.is_complete


def test_the_deterministic_order_of_adding_is_that_of_the_instances() -> None:
    diffs = list(np.random.default_rng(0).normal(size=(5, 100)).astype(np.float32))
    expected = diffs[0]
    for diff in diffs[1:]:
        expected = expected + diff
    for choose in (lambda count: 0, lambda count: count - 1):
        sums = Interleaving(ServerGather([0] * 5, [100], deterministic=True), diffs, [[0]] * 5).run(choose)
        assert sums.tobytes() == expected.tobytes()


def test_buckets_are_added_to_independently() -> None:
    gather = ServerGather([0, 0, 0], [10, 20])
    assert gather.give(0, 1) == gather.give(0, 0) == []
    assert [one.bucket for one in gather.give(1, 1)] == [1]
    assert [one.bucket for one in gather.give(1, 0)] == [0]


def test_one_instance_has_nothing_to_add() -> None:
    gather = ServerGather([0], [10])
    [alone] = gather.give(0, 0)
    assert alone.sources == (0,) and alone.moved == 0
    assert gather.added(alone) == [] and gather.is_complete
