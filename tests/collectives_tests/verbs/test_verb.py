"""Blocks of a vector, and the parts of two vectors that a call takes."""

from __future__ import annotations

import pytest

from collectives.errors import AlgorithmError
from collectives.verbs import SCHEDULED, VERBS, arrays_of, block_of, bounds_of, counts_of, even_bounds, scheduled


def test_blocks_are_nearly_equal_by_default() -> None:
    assert even_bounds(2, 4) == (0, 0, 1, 1, 2) and even_bounds(10, 3) == (0, 3, 6, 10)


def test_bounds_and_lengths_say_the_same() -> None:
    assert bounds_of([2, 0, 3]) == (0, 2, 2, 5) and counts_of((0, 2, 2, 5)) == (2, 0, 3)
    assert [block_of(rank, (0, 2, 2, 5)) for rank in range(3)] == [(0, 2), (2, 2), (2, 5)]


@pytest.mark.parametrize(
    ("name", "send", "recv"),
    [
        ("reduce", "abcdef", None),
        ("bcast", "abcdef", None),
        ("allreduce", "abcdef", "ABCDEF"),
        ("reduce_scatter", "abcdef", "CD"),
        ("allgather", "cd", "ABCDEF"),
        ("gather", "cd", ""),  # a verb with blocks has a result everywhere, of no elements
        ("scatter", "", "CD"),
    ],
)
def test_a_call_takes_what_the_rank_brings_and_what_it_gets(name: str, send: str, recv: str | None) -> None:
    """Rank 1 of 3, root 0."""
    assert arrays_of(VERBS[name], 1, 3, 0, "abcdef", "ABCDEF") == (send, recv)
    if name == "reduce":
        assert arrays_of(VERBS[name], 0, 3, 0, "abcdef", "ABCDEF") == ("abcdef", "ABCDEF")


def test_verbs_that_join_or_spread_have_schedules() -> None:
    assert {*VERBS} - {*SCHEDULED} == {"alltoall", "gather", "scatter", "barrier"}
    assert all(one.joins or one.spreads for one in SCHEDULED.values())
    with pytest.raises(AlgorithmError, match="unknown collective 'gather'; known are reduce, bcast, allreduce"):
        scheduled("gather")
