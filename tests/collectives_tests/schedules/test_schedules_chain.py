from __future__ import annotations

import pytest

from collectives.model.clusters import Cluster
from collectives.model.predicting import predict
from collectives.schedules.algorithms import make_schedule
from collectives.schedules.chain import Chain
from collectives.schedules.registry import find

NODES = Cluster("nodes", 8, 4, alpha_in=1e-6, beta_in=1e-10, alpha=5e-6, beta=1e-9, gamma=2e-10)


def test_each_rank_has_the_next_one_below_it() -> None:
    chain = Chain(4)
    assert [chain.parent(v) for v in range(4)] == [None, 0, 1, 2]
    assert [chain.children(v) for v in range(4)] == [[1], [2], [3], []]


@pytest.mark.parametrize("ranks", [2, 4, 8, 32])
@pytest.mark.parametrize("op", ["reduce", "bcast"])
def test_the_closed_form_is_what_its_steps_take(op: str, ranks: int) -> None:
    """An addition takes less than a message, so that chunks follow each other as fast as the slowest link has them."""
    n, chunk = 1 << 20, 1 << 16
    found = find("chain").cost(op, "chain", NODES, ranks, n, chunk)
    schedule = make_schedule(op, "chain", ranks, n // 4, chunk=chunk // 4, depth=100)
    assert found and found.seconds == pytest.approx(predict(schedule, NODES), rel=0.05)


def test_an_allreduce_by_it_is_in_no_table() -> None:
    assert find("chain").tabled("reduce", 8) == ("chain",) and find("chain").tabled("allreduce", 8) == ()
