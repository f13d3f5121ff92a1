from __future__ import annotations

from math import ceil, log2

import pytest

from collectives.model.clusters import Cluster
from collectives.model.predicting import predict
from collectives.schedules.algorithms import make_schedule
from collectives.schedules.binomial import Binomial
from collectives.schedules.registry import find
from collectives.schedules.trees import Tree

NODES = Cluster("nodes", 8, 4, alpha_in=1e-6, beta_in=1e-10, alpha=5e-6, beta=1e-9, gamma=2e-10, nics=4)


def test_binomial_tree_has_log_p_rounds() -> None:
    for size in range(2, 200):
        assert rounds(Binomial(size), 0) == ceil(log2(size))


def rounds(tree: Tree, v: int) -> int:
    """How long a reduce of one chunk takes, in messages: a rank takes its children's one after the other."""
    done = 0
    for child in tree.children(v):
        done = max(done, rounds(tree, child)) + 1
    return done


def test_children_stand_nearest_first() -> None:
    assert Binomial(13).children(0) == [1, 2, 4, 8] and Binomial(13).children(8) == [9, 10, 12]
    assert Binomial(13).parent(12) == 8 and Binomial(13).parent(11) == 10


@pytest.mark.parametrize("ranks", [2, 4, 8, 32])
@pytest.mark.parametrize("op", ["reduce", "bcast"])
def test_the_closed_form_of_a_whole_message_is_what_its_steps_take(op: str, ranks: int) -> None:
    n = 1 << 20
    found = find("binomial").cost(op, "binomial", NODES, ranks, n, n)
    assert found and found.seconds == pytest.approx(
        predict(make_schedule(op, "binomial", ranks, n // 4, chunk=n), NODES)
    )


def test_an_allreduce_by_it_is_not_tried() -> None:
    assert find("binomial").tried("reduce", 8) == ("binomial",) and find("binomial").tried("allreduce", 8) == ()
