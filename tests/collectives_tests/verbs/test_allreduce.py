from __future__ import annotations

from collectives.verbs import ALLREDUCE

BOUNDS = (0, 2, 5, 9)  # of three ranks' blocks


def test_all_bring_a_vector_and_all_get_the_sum() -> None:
    assert [ALLREDUCE.contribution(rank, 1, BOUNDS) for rank in range(3)] == [(0, 9)] * 3
    assert [ALLREDUCE.result(rank, 1, BOUNDS) for rank in range(3)] == [(0, 9)] * 3
    assert ALLREDUCE.joins and ALLREDUCE.spreads and not ALLREDUCE.has_root and not ALLREDUCE.has_blocks


def test_it_moves_what_a_reduce_scatter_and_an_allgather_move() -> None:
    assert [ALLREDUCE.moved(places) for places in (1, 2, 4)] == [0, 1, 1.5] and ALLREDUCE.touched(4) == 8
