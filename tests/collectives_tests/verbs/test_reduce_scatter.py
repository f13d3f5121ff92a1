from __future__ import annotations

from collectives.verbs import REDUCE_SCATTER

BOUNDS = (0, 2, 5, 9)  # of three ranks' blocks


def test_all_bring_a_vector_and_each_gets_its_block_of_the_sum() -> None:
    assert [REDUCE_SCATTER.contribution(rank, 0, BOUNDS) for rank in range(3)] == [(0, 9)] * 3
    assert [REDUCE_SCATTER.result(rank, 0, BOUNDS) for rank in range(3)] == [(0, 2), (2, 5), (5, 9)]
    assert REDUCE_SCATTER.joins and REDUCE_SCATTER.has_blocks
    assert not REDUCE_SCATTER.spreads and not REDUCE_SCATTER.has_root


def test_each_sends_all_but_its_block_and_memory_has_all_and_one_sum() -> None:
    assert [REDUCE_SCATTER.moved(places) for places in (1, 2, 4)] == [0, 0.5, 0.75] and REDUCE_SCATTER.touched(4) == 5
