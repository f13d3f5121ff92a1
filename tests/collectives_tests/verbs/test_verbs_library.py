from __future__ import annotations

import pytest

from collectives.verbs import ALLTOALL, BARRIER, GATHER, SCATTER, Verb

BOUNDS = (0, 2, 5, 9)  # of three ranks' blocks
BLOCKS, WHOLE = [(0, 2), (2, 5), (5, 9)], [(0, 0), (0, 9), (0, 0)]  # by rank; of the root 1 alone


def test_the_root_gets_what_it_gives_in_a_scatter() -> None:
    for verb, brings, gets in ((GATHER, BLOCKS, WHOLE), (SCATTER, WHOLE, BLOCKS)):
        assert [verb.contribution(rank, 1, BOUNDS) for rank in range(3)] == brings
        assert [verb.result(rank, 1, BOUNDS) for rank in range(3)] == gets
        assert verb.has_root and verb.has_blocks and not verb.is_scheduled


def test_an_alltoall_brings_and_gets_a_vector() -> None:
    assert ALLTOALL.contribution(1, 0, BOUNDS) == ALLTOALL.result(1, 0, BOUNDS) == (0, 9)
    assert not ALLTOALL.has_blocks and not ALLTOALL.has_root


@pytest.mark.parametrize(
    ("verb", "moved", "touched"), [(GATHER, 0.75, 2), (SCATTER, 0.75, 2), (ALLTOALL, 0.75, 8), (BARRIER, 0, 0)]
)
def test_what_four_ranks_move_at_least(verb: Verb, moved: float, touched: float) -> None:
    assert (verb.moved(4), verb.touched(4)) == (moved, touched) and verb.moved(1) == 0
