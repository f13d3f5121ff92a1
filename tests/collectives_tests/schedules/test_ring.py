from __future__ import annotations

import pytest

from collectives.model.clusters import Cluster
from collectives.model.predicting import predict
from collectives.schedules.algorithms import make_schedule
from collectives.schedules.exchange import SHARE, SUM
from collectives.schedules.registry import find
from collectives.schedules.ring import ring
from collectives.schedules.schedule import StepKind


@pytest.mark.parametrize("size", [2, 3, 4, 7, 16])
def test_ring_neighbours_pass_each_block_all_the_way_round(size: int) -> None:
    for half in (SUM, SHARE):
        rounds = [list(ring(v, size, half)) for v in range(size)]
        for v in range(size):
            assert [give for give, _ in rounds[v]] == [take for _, take in rounds[(v + 1) % size]]
    for v in range(size):
        assert list(ring(v, size, SUM))[-1][1] == v and next(ring(v, size, SHARE))[0] == v
        assert {take for _, take in ring(v, size, SHARE)} == set(range(size)) - {v}


@pytest.mark.parametrize("together", [1, 2, 8])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_a_ring_has_the_same_number_of_pieces_in_flight_from_lap_to_lap(ranks: int, together: int) -> None:
    laps = 3
    schedule = make_schedule("allreduce", "ring", ranks, ranks * laps * together, chunk=1, depth=max(2, 2 * together))
    for rank in range(ranks):
        sent = came = 0
        for step in schedule.rank(rank):
            if step.kind is StepKind.SEND:
                sent += 1
            else:
                assert sent == min(came + together, 2 * (ranks - 1) * laps * together)
                came += 1
        assert sent == came == 2 * (ranks - 1) * laps * together


@pytest.mark.parametrize("gamma", [0, 10])
@pytest.mark.parametrize("chunks", [1, 4])
def test_the_closed_form_is_what_its_steps_take(chunks: int, gamma: float) -> None:
    """Over five nodes, each with a block of 400 bytes; additions of 10 s a byte take longer than messages."""
    links, chunk = Cluster("even", 8, 1, alpha_in=0, beta_in=0, alpha=20, beta=1, gamma=gamma), 400 // chunks
    for op in ("reduce_scatter", "allgather"):
        found = find("ring").cost(op, "ring", links, 5, 2000, chunk)
        schedule = make_schedule(op, "ring", 5, 500, chunk=chunk // 4, depth=16)
        assert found and found.seconds == pytest.approx(predict(schedule, links), rel=0.06)
