from __future__ import annotations

import pytest

from scaffe.parallel.instances.gathers.gather import RESULT
from scaffe.parallel.instances.gathers.server import ServerGather

pytestmark = pytest.mark.mpi_skip


def test_the_thread_that_adds_takes_what_came_meanwhile() -> None:
    gather = ServerGather([0] * 4, [10])
    [first] = gather.give(2, 0)
    assert first.sources == (2,) and first.target == RESULT
    assert gather.give(3, 0) == gather.give(0, 0) == []  # no thread waits
    [second] = gather.added(first)
    assert second.sources == (RESULT, 3, 0)
    assert gather.added(second) == [] and not gather.is_complete
    [third] = gather.give(1, 0)
    assert third.sources == (RESULT, 1)
    assert gather.added(third) == [] and gather.is_complete
    assert first.moved + second.moved + third.moved == 10 * (4 + 3 + 2)  # 4 gradients, the sums written and read again


def test_deterministic_gradients_wait_for_their_turn() -> None:
    gather = ServerGather([0] * 4, [10], deterministic=True)
    assert gather.give(2, 0) == []
    [first] = gather.give(0, 0)
    assert first.sources == (0,)
    assert gather.added(first) == []
    [second] = gather.give(1, 0)
    assert second.sources == (RESULT, 1, 2)
    assert gather.added(second) == []
    [third] = gather.give(3, 0)
    assert third.sources == (RESULT, 3)


def test_buckets_are_added_to_independently() -> None:
    gather = ServerGather([0, 0], [10, 20])
    assert [one.bucket for one in gather.give(0, 1)] == [1]
    assert [one.bucket for one in gather.give(1, 0)] == [0]
