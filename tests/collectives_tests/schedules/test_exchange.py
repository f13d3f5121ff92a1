from __future__ import annotations

import pytest

from collectives.execution.execute import InFlight
from collectives.schedules.algorithms import make_schedule
from collectives.schedules.exchange import SHARE, SUM, pieces
from collectives.schedules.halving import blocks_of_rounds, cost, halving
from collectives.schedules.ring import ring
from collectives.schedules.schedule import StepKind
from collectives.simulation.check import check
from collectives.verbs import even_bounds


@pytest.mark.parametrize("power", [1, 2, 4, 8, 64])
def test_halving_pairs_ranks_that_give_what_the_other_keeps(power: int) -> None:
    every = [list(halving(v, power)) for v in range(power)]
    for v, rounds in enumerate(every):
        assert len(rounds) == power.bit_length() - 1
        for i, (divides, (give,), (keep,)) in enumerate(rounds):
            assert divides and every[keep.peer][i].sends == [(v, keep.blocks, 0, 1)]
            assert give.peer == keep.peer == v ^ (power >> (i + 1))
            assert keep.blocks[1] - keep.blocks[0] == power >> (i + 1)
        assert not rounds or rounds[-1].receives[0].blocks == (v, v + 1)


@pytest.mark.parametrize("parts", [1, 3])
def test_each_transfer_has_both_ends(parts: int) -> None:
    for size in range(1, 70):
        every = [list(halving(v, size, parts)) for v in range(size)]
        sent = sorted((v, one.peer, *one[1:]) for v, rounds in enumerate(every) for r in rounds for one in r.sends)
        got = sorted((one.peer, v, *one[1:]) for v, rounds in enumerate(every) for r in rounds for one in r.receives)
        assert sent == got


def test_halving_over_any_number_of_ranks_takes_about_as_long_as_over_the_next_power_of_two() -> None:
    for size in range(2, 1100):
        power = 1 << (size - 1).bit_length()
        (blocks, rounds), (most, least) = cost(size), cost(power)
        assert blocks / size <= 1.15 * most / power and rounds <= least + 1 and least == power.bit_length() - 1
        assert sum(blocks_of_rounds(size)) == blocks


@pytest.mark.parametrize("size", [2, 3, 4, 7, 16])
def test_ring_neighbours_pass_each_block_all_the_way_round(size: int) -> None:
    for half in (SUM, SHARE):
        rounds = [list(ring(v, size, half)) for v in range(size)]
        for v in range(size):
            assert [give for give, _ in rounds[v]] == [take for _, take in rounds[(v + 1) % size]]
    for v in range(size):
        assert list(ring(v, size, SUM))[-1][1] == v and next(ring(v, size, SHARE))[0] == v
        assert {take for _, take in ring(v, size, SHARE)} == set(range(size)) - {v}


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


def test_blocks_of_fewer_elements_than_ranks() -> None:
    assert even_bounds(2, 4) == (0, 0, 1, 1, 2)


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


def test_halving_sends_several_pieces_before_it_waits_for_one() -> None:
    steps = make_schedule("allreduce", "halving", 2, 64, chunk=1, depth=16).rank(0)
    assert [step.kind for step in steps[:9]] == [*[StepKind.SEND] * 8, StepKind.RECV_ADD]


@pytest.mark.parametrize("name", ["ring", "halving"])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_as_many_sends_as_pieces_are_enough(name: str, ranks: int) -> None:
    for depth, sends in ((8, 4), (16, 8)):
        check(make_schedule("allreduce", name, ranks, 40 * ranks + 1, chunk=2, depth=depth), InFlight(4, sends))
