from __future__ import annotations

from collectives.verbs import REDUCE

BOUNDS = (0, 2, 5, 9)  # of three ranks' blocks


def test_all_bring_a_vector_and_the_root_gets_the_sum() -> None:
    assert [REDUCE.contribution(rank, 1, BOUNDS) for rank in range(3)] == [(0, 9)] * 3
    assert [REDUCE.result(rank, 1, BOUNDS) for rank in range(3)] == [(0, 0), (0, 9), (0, 0)]
    assert REDUCE.joins and REDUCE.has_root and not REDUCE.spreads and not REDUCE.has_blocks


def test_the_root_receives_a_vector_and_memory_has_all_and_the_sum() -> None:
    assert [REDUCE.moved(places) for places in (1, 2, 4)] == [0, 1, 1] and REDUCE.touched(4) == 5
