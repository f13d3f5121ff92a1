from __future__ import annotations

import pytest

from collectives.group import Group
from collectives.schedules.algorithms import make_schedule, order_for
from collectives.schedules.halving import blocks_of_rounds, cost, halving
from collectives.schedules.schedule import StepKind


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


def test_halving_sends_several_pieces_before_it_waits_for_one() -> None:
    steps = make_schedule("allreduce", "halving", 2, 64, chunk=1, depth=16).rank(0)
    assert [step.kind for step in steps[:9]] == [*[StepKind.SEND] * 8, StepKind.RECV_ADD]


def test_ranks_are_numbered_from_the_supernodes_in_turn() -> None:
    group = Group.uniform(8, nodes_per_supernode=4)
    assert order_for("halving", group) == [0, 4, 1, 5, 2, 6, 3, 7] and order_for("ring", group) == [*range(8)]
