from __future__ import annotations

from math import ceil, log2

import pytest

from collectives.errors import AlgorithmError
from collectives.schedules.registry import algorithms
from collectives.schedules.tree_algorithm import TreeAlgorithm, make_trees
from collectives.schedules.trees import Tree

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
    assert make_trees(name, 160)[0].height(0) == height


def test_binomial_tree_has_log_p_rounds() -> None:
    for size in range(2, 200):
        assert rounds(make_trees("binomial", size)[0], 0) == ceil(log2(size))


def rounds(tree: Tree, v: int) -> int:
    """How long a reduce of one chunk takes, in messages: a rank takes its children's one after the other."""
    done = 0
    for child in tree.children(v):
        done = max(done, rounds(tree, child)) + 1
    return done


def test_hierarchy_hangs_chains_of_eight_under_a_binomial_tree_of_their_first_ranks() -> None:
    (tree,) = make_trees("cb-8", 30)
    assert [tree.parent(v) for v in (1, 7, 8, 9, 16, 24, 29)] == [0, 6, 0, 8, 0, 16, 28]
    assert tree.levels(0) == [[1], [8, 16]] and tree.children(16) == [17, 24] and tree.children(24) == [25]
    assert [tree.level(v) for v in (1, 8, 24)] == [0, 1, 1]


def test_hierarchy_of_three_levels() -> None:
    (tree,) = make_trees("ccb-4-2", 32)
    assert tree.levels(0) == [[1], [4], [8, 16]] and tree.levels(4) == [[5], []]
    assert tree.height(0) == 3 + 1 + 2


def test_a_rank_with_children_in_one_of_two_trees_is_a_leaf_in_the_other() -> None:
    for size in [*range(1, 40), 127, 128, 199, 200]:
        first, second = make_trees("two-tree", size)
        assert all(not first.children(v) or not second.children(v) for v in range(1, size))
        assert max(len(tree.children(v)) for tree in (first, second) for v in range(size)) <= 2
        assert max(first.height(0), second.height(0)) <= ceil(log2(size)) + 1


def test_names_take_the_chain_size_in_both_forms() -> None:
    assert make_trees("cb", 50, chain_size=8) == make_trees("cb-8", 50)
    assert make_trees("ccb-8", 50) == make_trees("ccb-8-8", 50)


@pytest.mark.parametrize(
    ("name", "chain_size", "message"),
    [
        ("tree", None, "unknown algorithm 'tree'"),
        ("cx-8", None, "unknown algorithm 'cx-8'"),
        ("cb-eight", None, "unknown algorithm 'cb-eight'"),
        ("cb-0", None, "chain size 0"),
        ("cb", 0, "chain size 0"),
        ("cb", -1, "chain size -1"),
        ("cb", None, "needs a chain size"),
        ("ccb-8-4-2", None, "needs one chain size or 2"),
        ("chain-8", None, "'chain' takes no number"),
        ("kary-0", None, "at least 1"),
    ],
)
def test_a_wrong_name_says_what_is_wrong(name: str, chain_size: int | None, message: str) -> None:
    with pytest.raises(AlgorithmError, match=message):
        make_trees(name, 16, chain_size)
