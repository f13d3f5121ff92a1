from __future__ import annotations

import pytest

from collectives.errors import AlgorithmError
from collectives.schedules.kary import Kary
from collectives.schedules.registry import find
from collectives.schedules.tree_algorithm import make_trees


def test_a_rank_has_up_to_k_children_in_a_row() -> None:
    tree = Kary(9, 3)
    assert [tree.children(v) for v in range(4)] == [[1, 2, 3], [4, 5, 6], [7, 8], []]
    assert [tree.parent(v) for v in (0, 3, 4, 8)] == [None, 0, 1, 2]


def test_without_a_number_it_is_binary() -> None:
    assert make_trees("kary", 9) == make_trees("kary-2", 9) == [Kary(9, 2)]
    for name in ("kary-0", "kary-2-3"):
        with pytest.raises(AlgorithmError, match=f"'{name}': kary takes one number of children, at least 1"):
            make_trees(name, 9)


def test_the_models_table_has_the_binary_tree_of_a_reduce_and_a_broadcast() -> None:
    assert find("kary-2").modelled("bcast") == ("kary-2",) and find("kary-2").modelled("allreduce") == ()
    assert find("kary-2").tried("reduce", 8) == ()
