from __future__ import annotations

import pytest

from collectives.errors import AlgorithmError
from collectives.model.clusters import Cluster
from collectives.schedules.registry import find
from collectives.schedules.tree_algorithm import Hops, TreeAlgorithm, make_trees, numbers

TWO_NODES = Cluster("two", 2, 4, alpha_in=1, beta_in=2, alpha=10, beta=20, gamma=100, nics=4)


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
        ("ring", None, "algorithm 'ring' has no trees"),
    ],
)
def test_a_wrong_name_says_what_is_wrong(name: str, chain_size: int | None, message: str) -> None:
    with pytest.raises(AlgorithmError, match=message):
        make_trees(name, 16, chain_size)


def test_numbers_have_nine_digits_at_most() -> None:
    assert numbers("ccb-8-123456789") == [8, 123456789] and numbers("ring") == []
    with pytest.raises(AlgorithmError, match="a number of 10 digits; expected 9 at most"):
        numbers("cb-1234567890")


def test_a_chunk_passes_all_hops_and_each_further_one_the_busiest_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three chunks of 2 bytes; a message takes 5 s in a node and 50 s between nodes, an addition 200 s."""
    algorithm = find("chain")
    assert isinstance(algorithm, TreeAlgorithm)
    monkeypatch.setattr(type(algorithm), "hops", lambda self, name, ranks, inside: Hops((3, 1), (1, 1), 1))
    up = algorithm.cost("reduce", "chain", TWO_NODES, 8, 6, 2)
    down = algorithm.cost("bcast", "chain", TWO_NODES, 8, 6, 2)
    both = algorithm.cost("allreduce", "chain", TWO_NODES, 8, 6, 2)
    assert up == (3 * 205 + 250 + 2 * 200, 3 * 200, "chain", 2)
    assert down == (3 * 5 + 50 + 2 * 55, 3 * 55, "chain", 2)
    assert both == (up[0] + down[0], up[1] + down[1], "chain", 2)
