from __future__ import annotations

import pytest

from collectives.errors import AlgorithmError
from collectives.group import Group


def test_uniform_group_fills_node_after_node_and_supernode_after_supernode() -> None:
    group = Group.uniform(10, ranks_per_node=2, nodes_per_supernode=2)
    assert group.nodes == (0, 0, 1, 1, 2, 2, 3, 3, 4, 4)
    assert group.supernodes == (0, 0, 0, 0, 1, 1, 1, 1, 2, 2)


@pytest.mark.parametrize("root", [0, 3, 8, 11])
def test_order_starts_at_the_root_and_enters_each_node_once(root: int) -> None:
    group = Group.of(["b", "a", "c", "a", "b", "c", "a", "b", "d", "a", "b", "c"])
    order = group.order(root)
    assert order[0] == root and sorted(order) == list(range(12))
    nodes = [group.nodes[rank] for rank in order]
    assert 1 + sum(one != next for one, next in zip(nodes, nodes[1:], strict=False)) == 4


def test_order_of_ranks_in_a_row_is_a_circle() -> None:
    assert Group.uniform(6).order(2) == [2, 3, 4, 5, 0, 1]
    assert Group.uniform(6, ranks_per_node=3).order(4) == [4, 5, 3, 0, 1, 2]


def test_order_goes_through_a_supernode_before_the_next() -> None:
    assert Group.of("abcd", "xyxy").order(1) == [1, 3, 2, 0]


def test_round_robin_deals_ranks_from_the_supernodes_in_turn() -> None:
    group = Group.uniform(8, nodes_per_supernode=4)
    assert group.round_robin() == [0, 4, 1, 5, 2, 6, 3, 7]  # swCaffe, figure 7: 8 nodes in 2 supernodes
    assert Group.of("aabbb", "aabbb").round_robin() == [0, 2, 1, 3, 4]


def test_an_impossible_group_is_refused() -> None:
    with pytest.raises(AlgorithmError, match="at least one rank"):
        Group.uniform(4, ranks_per_node=0)
    with pytest.raises(AlgorithmError, match="root 4 is not one of 4 ranks"):
        Group.uniform(4).order(4)
