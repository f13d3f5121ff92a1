"""Groups of ranks that follow each other on their nodes, and of ranks that are dealt out to nodes in turn."""

from __future__ import annotations

from collections.abc import Callable

import counted_ranks
import pytest

from collectives.group import Group, from_firsts


@pytest.mark.parametrize("node", [lambda rank: rank // 4, lambda rank: rank % 3, lambda rank: rank * rank % 5])
def test_all_ranks_find_the_same_nodes_and_hear_of_each(node: Callable[[int], int]) -> None:
    def find(comm: counted_ranks.CountedComm) -> tuple[Group, list[bytes]]:
        counted_ranks.PLACE.node = node(comm.rank)
        group = Group.from_comm(comm)
        return group, from_firsts(comm, group, b"n" * (1 + node(comm.rank)))

    expected = Group.of([node(rank) for rank in range(11)])
    names = [b"n" * (1 + node(first)) for first in expected.firsts]
    assert counted_ranks.run(11, 4, find) == [(expected, names)] * 11
