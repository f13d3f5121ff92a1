from __future__ import annotations

import pytest

from collectives.errors import AlgorithmError
from collectives.schedules.algorithms import make_schedule
from collectives.schedules.registry import find
from collectives.schedules.schedule import OUT, OWN, StepKind


def test_a_level_begins_when_the_one_below_has_ended() -> None:
    """Rank 0 adds its chain's two chunks to its sum, then the other chains' whole sums."""
    steps = make_schedule("reduce", "cb-2:levels", 6, 8, chunk=4).rank(0)
    assert [(step.peer, step.start, step.stop) for step in steps] == [(1, 0, 4), (1, 4, 8), (2, 0, 8), (4, 0, 8)]
    assert [(step.source, step.target) for step in steps] == [(OWN, OUT), (OWN, OUT), (OUT, OUT), (OUT, OUT)]


def test_a_rank_inside_a_chain_sends_each_sum_on_and_a_chains_first_keeps_it_for_the_next_level() -> None:
    schedule = make_schedule("reduce", "cb-3:levels", 6, 8, chunk=4)
    kinds = [(step.kind, step.peer, step.source) for step in schedule.rank(1)]
    assert kinds == [
        (StepKind.RECV_ADD, 2, OWN),
        (StepKind.SEND, 0, 0),
        (StepKind.RECV_ADD, 2, OWN),
        (StepKind.SEND, 0, 1),
    ]
    kinds = [(step.kind, step.peer, step.stop - step.start) for step in schedule.rank(3)]
    assert kinds == [(StepKind.RECV_ADD, 4, 4), (StepKind.RECV_ADD, 4, 4), (StepKind.SEND, 0, 8)]


def test_it_is_a_reduce_over_one_tree_for_comparison() -> None:
    levels = find("cb-8:levels")
    assert levels.tried("reduce", 8) == levels.modelled("reduce") == ()
    assert levels.slot_elements(4, 100) == 100
    for op, name in (("bcast", "cb-8:levels"), ("reduce", "two-tree:levels")):
        with pytest.raises(AlgorithmError, match=f"{op} has no algorithm '{name}': ':levels' goes with a reduce over"):
            make_schedule(op, name, 4, 4)
