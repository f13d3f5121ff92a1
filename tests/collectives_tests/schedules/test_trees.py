from __future__ import annotations

import pytest

from collectives.schedules.registry import algorithms
from collectives.schedules.tree_algorithm import TreeAlgorithm, make_trees

TREES = [each for each in algorithms() if isinstance(each, TreeAlgorithm)]
NAMES = sorted({name for each in TREES for name in (*each.examples, *each.samples)})


@pytest.mark.parametrize("name", NAMES)
def test_parents_and_children_agree_and_reach_every_rank_once(name: str) -> None:
    for size in [*range(1, 40), 127, 128, 160, 199]:
        for tree in make_trees(name, size):
            children = [child for v in range(size) for child in tree.children(v)]
            assert sorted(children) == list(range(1, size))
            assert all(tree.parent(child) == v for v in range(size) for child in tree.children(v))
            assert tree.parent(0) is None and max(map(tree.depth, range(size))) == tree.height(0)


@pytest.mark.parametrize(("name", "height"), [("chain", 159), ("flat", 1), ("binomial", 7), ("kary-2", 7)])
def test_height_of_a_plain_tree(name: str, height: int) -> None:
    (tree,) = make_trees(name, 160)
    assert tree.height(0) == height
    assert tree.levels(0) == [tree.children(0)] and tree.level(1) == 0
