from __future__ import annotations

from collectives.verbs import BCAST

BOUNDS = (0, 2, 5, 9)  # of three ranks' blocks


def test_the_root_brings_a_vector_and_all_get_it() -> None:
    assert [BCAST.contribution(rank, 1, BOUNDS) for rank in range(3)] == [(0, 0), (0, 9), (0, 0)]
    assert [BCAST.result(rank, 1, BOUNDS) for rank in range(3)] == [(0, 9)] * 3
    assert BCAST.spreads and BCAST.has_root and not BCAST.joins and not BCAST.has_blocks


def test_each_other_rank_receives_a_vector_and_writes_one() -> None:
    assert [BCAST.moved(places) for places in (1, 2, 4)] == [0, 1, 1] and BCAST.touched(4) == 4
