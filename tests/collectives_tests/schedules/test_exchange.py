from __future__ import annotations

import pytest

from collectives.schedules.exchange import block, pieces
from collectives.schedules.halving import fold, halving, survivors
from collectives.schedules.ring import ring


@pytest.mark.parametrize("power", [1, 2, 4, 8, 64])
def test_halving_pairs_ranks_that_give_what_the_other_keeps(power: int) -> None:
    every = [halving(v, power) for v in range(power)]
    for v, rounds in enumerate(every):
        assert len(rounds) == power.bit_length() - 1
        for i, (partner, give, keep) in enumerate(rounds):
            assert every[partner][i] == (v, keep, give)
            assert give[1] - give[0] == keep[1] - keep[0] == power >> (i + 1)
        assert not rounds or rounds[-1].keep == (v, v + 1)


def test_ranks_beyond_the_power_of_two_fold_into_one_partner_each() -> None:
    for size in range(1, 40):
        partners = [fold(v, size) for v in range(size)]
        assert all(partner is None or partners[partner] == v for v, partner in enumerate(partners))
        assert sum(partner is None for partner in partners) == 2 * survivors(size) - size


@pytest.mark.parametrize("size", [2, 3, 4, 7, 16])
def test_ring_neighbours_pass_each_block_all_the_way_round(size: int) -> None:
    rounds = [list(ring(v, size)) for v in range(size)]
    for v in range(size):
        assert [give for give, _ in rounds[v]] == [take for _, take in rounds[(v + 1) % size]]
        assert rounds[v][size - 2][1] == v
        assert {take for _, take in rounds[v][size - 1 :]} == set(range(size)) - {v}


@pytest.mark.parametrize(("start", "stop", "count"), [(0, 10, 3), (5, 7, 4), (3, 3, 2), (0, 64, 8)])
def test_pieces_cover_a_slice_in_order(start: int, stop: int, count: int) -> None:
    cut = pieces(start, stop, count)
    assert len(cut) == count and [cut[0][0], cut[-1][1]] == [start, stop]
    assert all(one[1] == next[0] for one, next in zip(cut, cut[1:], strict=False))
    assert max(b - a for a, b in cut) - min(b - a for a, b in cut) <= 1


def test_blocks_of_fewer_elements_than_ranks() -> None:
    assert [block(2, 4, i) for i in range(4)] == [(0, 0), (0, 1), (1, 1), (1, 2)]
