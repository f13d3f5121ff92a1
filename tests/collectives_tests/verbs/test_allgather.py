from __future__ import annotations

from collectives.verbs import ALLGATHER

BOUNDS = (0, 2, 5, 9)  # of three ranks' blocks


def test_each_brings_its_block_and_all_get_the_vector() -> None:
    assert [ALLGATHER.contribution(rank, 0, BOUNDS) for rank in range(3)] == [(0, 2), (2, 5), (5, 9)]
    assert [ALLGATHER.result(rank, 0, BOUNDS) for rank in range(3)] == [(0, 9)] * 3
    assert ALLGATHER.spreads and ALLGATHER.has_blocks and not ALLGATHER.joins and not ALLGATHER.has_root


def test_each_receives_all_but_its_block_and_memory_has_one_vector_and_all_results() -> None:
    assert [ALLGATHER.moved(places) for places in (1, 2, 4)] == [0, 0.5, 0.75] and ALLGATHER.touched(4) == 5
