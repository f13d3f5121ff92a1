from __future__ import annotations

import numpy as np
import pytest
from interleavings import Interleaving

from scaffe.parallel.instances.gathers.tree import TreeGather, parents

pytestmark = pytest.mark.mpi_skip


@pytest.mark.parametrize(
    ("domains", "arity", "expected"),
    [
        ([0], 2, [-1]),
        ([0, 0, 0, 0], 1, [-1, 0, 1, 2]),
        ([0] * 7, 2, [-1, 0, 0, 1, 1, 2, 2]),
        ([0] * 5, 9, [-1, 0, 0, 0, 0]),
        ([3, 3, 5, 5], 2, [-1, 0, 0, 2]),  # one partial sum leaves domain 5
        ([0, 1, 2, 3], 2, [-1, 0, 0, 1]),
        ([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3], 2, [-1, 0, 0, 0, 3, 3, 0, 6, 6, 3, 9, 9]),
    ],
)
def test_the_tree_joins_a_domains_instances_first(domains: list[int], arity: int, expected: list[int]) -> None:
    assert parents(domains, arity) == expected


def test_the_order_of_adding_is_that_of_the_tree() -> None:
    a, b, c, d = diffs = list(np.random.default_rng(0).normal(size=(4, 50)).astype(np.float32))
    sums = Interleaving(TreeGather([0, 0, 1, 1], [50]), diffs, [[0]] * 4).run(lambda count: count - 1)
    assert sums.tobytes() == ((a + b) + (c + d)).tobytes()
    assert sums.tobytes() != (((a + b) + c) + d).tobytes()


def test_its_passes_over_the_buffer() -> None:
    gather, moved = TreeGather([0] * 7, [64], 2), 0
    due = [addition for i in range(7) for addition in gather.give(i, 0)]
    while due:
        addition = due.pop()
        moved += addition.moved
        due += gather.added(addition)
    assert moved == 64 * (7 + 2 * 3 - 1)  # 7 gradients read, 3 parents written, 2 of them read again
