from __future__ import annotations

import pytest

from collectives.schedules.binomial import Binomial
from collectives.schedules.chain import Chain
from collectives.schedules.hierarchy import Hierarchy
from collectives.schedules.registry import find
from collectives.schedules.tree_algorithm import Hops, make_trees


def test_hierarchy_hangs_chains_of_eight_under_a_binomial_tree_of_their_first_ranks() -> None:
    (tree,) = make_trees("cb-8", 30)
    assert tree == Hierarchy(30, 8, Chain, Binomial(4))
    assert [tree.parent(v) for v in (1, 7, 8, 9, 16, 24, 29)] == [0, 6, 0, 8, 0, 16, 28]
    assert tree.levels(0) == [[1], [8, 16]] and tree.children(16) == [17, 24] and tree.children(24) == [25]
    assert [tree.level(v) for v in (1, 8, 24)] == [0, 1, 1]


def test_hierarchy_of_three_levels() -> None:
    (tree,) = make_trees("ccb-4-2", 32)
    assert tree.levels(0) == [[1], [4], [8, 16]] and tree.levels(4) == [[5], []]
    assert tree.height(0) == 3 + 1 + 2


@pytest.mark.parametrize(
    ("name", "ranks", "inside", "hops"),
    [
        ("cb-8", 64, 8, Hops((7, 3), (1, 3), 4)),  # a chain in each node, a tree of eight nodes
        ("cb-8", 64, 16, Hops((7 + 1, 2), (1 + 1, 2), 4)),  # two chains in each node
        ("cb-8", 64, 1, Hops((0, 7 + 3), (0, 1 + 3), 4)),
        ("cb-8", 6, 6, Hops((5, 0), (1, 0), 1)),
        ("cb-1", 4, 1, Hops((0, 2), (0, 2), 2)),
        ("cc-8", 64, 8, None),
    ],
)
def test_messages_of_a_chunk_in_and_between_nodes(name: str, ranks: int, inside: int, hops: Hops | None) -> None:
    assert find(name).hops(name, ranks, inside) == hops  # type: ignore[attr-defined]


def test_groups_are_tried_that_are_smaller_than_the_job() -> None:
    each = find("cb-8")
    assert [each.tried("reduce", ranks) for ranks in (4, 5, 9)] == [(), ("cb-4",), ("cb-4", "cb-8")]
    assert each.tried("allreduce", 9) == each.tabled("allreduce", 9) == each.tabled("reduce", 8) == ()
    assert each.tabled("reduce", 9) == ("cb-8",)
