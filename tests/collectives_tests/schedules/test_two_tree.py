from __future__ import annotations

from math import ceil, log2

import pytest

from collectives.errors import AlgorithmError
from collectives.model.clusters import Cluster
from collectives.model.predicting import predict
from collectives.schedules.algorithms import make_schedule
from collectives.schedules.registry import find
from collectives.schedules.tree_algorithm import make_trees

EVEN = Cluster("even", 64, 1, alpha_in=0, beta_in=0, alpha=20e-6, beta=1e-9, gamma=0)


def test_a_rank_with_children_in_one_of_two_trees_is_a_leaf_in_the_other() -> None:
    for size in [*range(1, 40), 127, 128, 199, 200]:
        first, second = make_trees("two-tree", size)
        assert all(not first.children(v) or not second.children(v) for v in range(1, size))
        assert max(len(tree.children(v)) for tree in (first, second) for v in range(size)) <= 2
        assert max(first.height(0), second.height(0)) <= ceil(log2(size)) + 1


def test_the_twin_is_mirrored_or_shifted() -> None:
    """Sanders, Speck and Träff: mirrored over an even number of ranks below the root, else shifted by one."""
    first, second = make_trees("two-tree", 7)
    assert [first.children(v) for v in range(7)] == [[4], [], [1, 3], [], [2, 6], [], [5]]
    assert [second.children(v) for v in range(7)] == [[3], [2], [], [5, 1], [], [6, 4], []]
    _, second = make_trees("two-tree", 8)
    assert [second.children(v) for v in range(8)] == [[5], [], [], [2, 4], [], [3, 7], [], [6, 1]]


@pytest.mark.parametrize("ranks", [16, 64])
def test_the_closed_form_is_near_what_its_steps_take(ranks: int) -> None:
    n, chunk = 1 << 22, 1 << 14
    found = find("two-tree").cost("reduce", "two-tree", EVEN, ranks, n, chunk)
    schedule = make_schedule("reduce", "two-tree", ranks, n // 4, chunk=chunk // 4)
    assert found and found.seconds == pytest.approx(predict(schedule, EVEN), rel=0.1)
    with pytest.raises(AlgorithmError, match="'two-tree' takes no number"):
        make_trees("two-tree-2", ranks)
