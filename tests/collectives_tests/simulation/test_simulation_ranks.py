"""Ranks in virtual time: their clocks, messages and meetings, by hand."""

from __future__ import annotations

from functools import partial

import pytest

from collectives.model.clusters import Cluster
from collectives.model.network import LinkNetwork
from collectives.simulation.ranks import SimulatedRank, SimulatedRanks

EVEN = Cluster("even", 64, 1, alpha_in=0, beta_in=1, alpha=3, beta=1, gamma=0)


def world(ranks: int) -> SimulatedRanks:
    return SimulatedRanks(ranks, LinkNetwork(EVEN, EVEN.group(ranks), 1))


def test_a_message_begins_once_both_ranks_are_there_and_each_waits_by_its_own_clock() -> None:
    ranks = world(2)

    def work(rank: SimulatedRank) -> None:
        rank.spend(2 + 5 * rank.number)
        end = (ranks.receive if rank.number else ranks.send)(rank, ("x", 0, 1, 0), 10)
        assert not end.Test()
        end.Wait()
        assert end.Test() and rank.clock == 7 + 3 + 10

    assert ranks.run(work) == 20


def test_messages_of_a_channel_match_in_order() -> None:
    ranks, lengths = world(2), []

    def work(rank: SimulatedRank) -> None:
        for nbytes in (4, 1):
            end = (ranks.receive if rank.number else ranks.send)(rank, ("x", 0, 1, 0), nbytes)
            lengths.append((rank.number, end.message.elements, nbytes))
            end.Wait()

    assert ranks.run(work) == 3 + 4 + 3 + 1
    assert {(rank, found == nbytes) for rank, found, nbytes in lengths} == {(0, True), (1, True)}


def test_ranks_that_meet_have_the_sums_some_time_after_the_last_has_come() -> None:
    ranks, found = world(3), []

    def work(rank: SimulatedRank) -> None:
        for turn in range(2):
            rank.spend(rank.number)
            found.append((turn, *ranks.meet(rank, [rank.number, 1 + turn, 5], 10), rank.clock))

    ranks.run(work)
    assert sorted(found) == [(0, 3, 3, 15, 12)] * 3 + [(1, 3, 6, 15, 24)] * 3


def test_an_error_of_a_rank_is_raised() -> None:
    def fails(rank: SimulatedRank) -> None:
        rank.spend(1)
        rank.catch_up()
        raise KeyError(rank.number)

    with pytest.raises(KeyError, match="0"):
        world(2).run(fails)


def test_a_process_waits_for_what_its_background_still_does() -> None:
    def work(rank: SimulatedRank) -> None:
        rank.background = partial(rank.spend, 5)
        rank.wake()
        rank.spend(1)
        rank.catch_up()
        assert rank.clock == 1  # the background has a thread of its own
        rank.join_background()
        assert rank.clock == 5

    world(1).run(work)
