from __future__ import annotations

import numpy as np
import pytest
from interleavings import Interleaving

from scaffe.parallel.instances.gathers.slices import SlicesGather

pytestmark = pytest.mark.mpi_skip


def left(size: int, length: int) -> dict[int, list[tuple[int, int]]]:
    """Return the slices that each instance sums of one bucket that all give."""
    gather = SlicesGather([0] * size, [length])
    given = {i: gather.give(i, 0) for i in range(size)}
    return {i: [(one.start, one.stop) for one in given[i] + gather.owed(i)] for i in range(size)}


def test_each_instance_sums_its_slice_and_slices_start_on_cache_lines() -> None:
    assert left(3, 100) == {0: [(0, 32)], 1: [(32, 64)], 2: [(64, 100)]}  # 7 lines of 16
    assert left(4, 20) == {0: [], 1: [(0, 16)], 2: [], 3: [(16, 20)]}


def test_no_slice_is_due_before_all_have_given() -> None:
    gather = SlicesGather([0, 0, 0], [100, 50])
    assert gather.give(0, 1) == gather.give(1, 1) == gather.owed(0) == []
    assert [one.start for one in gather.give(2, 1)] == [32]
    assert [one.bucket for one in gather.give(0, 0)] == [1]  # found with the next gift


def test_the_order_of_adding_is_that_of_the_instances() -> None:
    diffs = list(np.random.default_rng(0).normal(size=(5, 100)).astype(np.float32))
    expected = diffs[0]
    for diff in diffs[1:]:
        expected = expected + diff
    sums = Interleaving(SlicesGather([0, 1, 0, 1, 0], [100]), diffs, [[0]] * 5).run(lambda count: 0)
    assert sums.tobytes() == expected.tobytes()


@pytest.mark.parametrize("size", [2, 3, 8, 56])
def test_n_plus_1_passes_over_the_buffer(size: int) -> None:
    gather, length = SlicesGather([0] * size, [10_000]), 10_000
    given = [gather.give(i, 0) for i in range(size)]
    moved = sum(one.moved for i in range(size) for one in given[i] + gather.owed(i))
    assert moved == (size + 1) * length  # n gradients read, the sums written over the first of them
