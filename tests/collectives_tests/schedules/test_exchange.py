from __future__ import annotations

import pytest

from collectives.execution.execute import InFlight
from collectives.schedules.algorithms import make_schedule
from collectives.schedules.exchange import pieces
from collectives.simulation.check import check


@pytest.mark.parametrize("name", ["ring", "halving"])
@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_an_allreduce_is_a_reduce_scatter_and_an_allgather(name: str, size: int) -> None:
    """With one piece a block, and ranks in their order, its steps are those of the one, then those of the other."""
    both, first, second = (make_schedule(op, name, size, 8 * size, chunk=8) for op in ("allreduce", *HALVES))
    if name == "halving":
        both, first, second = (make_schedule(op, name, size, 8 * size, chunk=8 * size) for op in ("allreduce", *HALVES))
    for rank in range(size):
        halves = [step._replace(after=0) for part in (first, second) for step in part.rank(rank)]
        assert [step._replace(after=0) for step in both.rank(rank)] == halves


HALVES = "reduce_scatter", "allgather"


@pytest.mark.parametrize(("start", "stop", "count"), [(0, 10, 3), (5, 7, 4), (3, 3, 2), (0, 64, 8)])
def test_pieces_cover_a_slice_in_order(start: int, stop: int, count: int) -> None:
    cut = pieces(start, stop, count)
    assert len(cut) == count and [cut[0][0], cut[-1][1]] == [start, stop]
    assert all(one[1] == next[0] for one, next in zip(cut, cut[1:], strict=False))
    assert max(b - a for a, b in cut) - min(b - a for a, b in cut) <= 1


@pytest.mark.parametrize("name", ["ring", "halving"])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_as_many_sends_as_pieces_are_enough(name: str, ranks: int) -> None:
    for depth, sends in ((8, 4), (16, 8)):
        check(make_schedule("allreduce", name, ranks, 40 * ranks + 1, chunk=2, depth=depth), InFlight(4, sends))
