"""Spares: who takes a lost rank's place."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace

import pytest

from collectives import RankLostError
from scaffe.errors import RanksLostError
from scaffe.parallel import spares as spares_module
from scaffe.parallel.reserve import LostRank, Reserve
from scaffe.parallel.spares import GOES_ON, SPLIT, JobProcess, Regrouped, Spares


class Comm:
    """A communicator of processes by their names, as far as `Spares` asks for its ranks."""

    def __init__(self, names: str):
        self.names, self.size, self.rank = names, len(names), 0
        self.group = SimpleNamespace(names=names, Translate_ranks=self._translated)

    def _translated(self, ranks, other):
        return [other.names.find(self.names[rank]) for rank in ranks]


def spares(hosts: str, count: int) -> tuple[Spares, str]:
    """Return the spares of a job whose processes run on these hosts, and the processes' names."""
    names = "abcdefgh"[: len(hosts)]
    members = [JobProcess(k, host, [0], 100 + k) for k, host in enumerate(hosts)]
    return Spares(Comm(names), members, count), names


@pytest.mark.parametrize(
    ("hosts", "count", "lost", "seats", "waiting"),
    [
        ("xxyyxy", 2, "b", [0, 4, 2, 3], [5]),  # on its own host
        ("xxyyxy", 2, "d", [0, 1, 2, 5], [4]),
        ("xxyyz", 1, "c", [0, 1, 4, 3], []),  # on any host
        ("xyyx", 1, "bc", [0, 3], []),  # the ranks become fewer
        ("xxyyxy", 2, "cd", [0, 1, 5, 4], []),  # first those on the hosts of the lost ranks
        ("xyxzy", 2, "ab", [3, 4, 2], []),
        ("xxyyxy", 2, "e", [0, 1, 2, 3], [5]),  # a spare itself
        ("xxxx", 1, "ad", [1, 2], []),
    ],
)
def test_a_spare_of_the_lost_ranks_host_takes_its_place(hosts, count, lost, seats, waiting):
    job, names = spares(hosts, count)
    changed = Regrouped([], [], [])
    job._take_left(Comm("".join(name for name in names if name not in lost)), changed)
    assert [one.number for one in job.seats] == seats
    assert [one.number for one in job.waiting] == waiting
    first = len(hosts) - count
    places = [names.index(name) for name in lost]
    assert [one.number for one in changed.lost] == [place for place in places if place < first]
    assert [one.number for one in changed.ended] == [place for place in places if place >= first]


def test_a_spare_that_has_taken_a_place_may_be_lost_too():
    job, _ = spares("xxxxx", 2)
    for names in ("acde", "ace"):
        job._take_left(Comm(names), Regrouped([], [], []))
    assert [one.number for one in job.seats] == [0, 4, 2]
    assert job.waiting == [] and job.size == 3


class Left(Comm):
    """A communicator that Shrink made: `lost_in_split` where a process is lost in Split, `others` in Agree."""

    def __init__(self, names: str, lost_in_split: bool, others: int, then: Left | None = None):
        super().__init__(names)
        self.lost_in_split, self.others, self.then = lost_in_split, others, then
        self.is_revoked, self.agreed = False, None

    def Shrink(self):
        assert self.then
        return self.then

    def Split(self, color, key):
        if self.lost_in_split:
            raise RankLostError("in Split")
        return self

    def Revoke(self):
        self.is_revoked = True

    def Agree(self, flag):
        assert self.is_revoked is self.lost_in_split, "the others wait in Split"
        self.agreed = flag
        return flag & self.others


@pytest.mark.parametrize("here", [True, False])
def test_a_process_lost_while_they_regroup_makes_all_regroup_again(here):
    job, _ = spares("xxxx", 1)
    last = Left("ad", False, -1)
    first = Left("acd", here, -1 if here else ~SPLIT, last)
    job.comm.Shrink = lambda: first
    comm, changed, code = job.regroup()
    assert (comm, code) == (last, None)
    assert first.agreed & GOES_ON and bool(first.agreed & SPLIT) is not here
    assert [one.number for one in job.seats] == [0, 3] and [one.number for one in changed.lost] == [1, 2]
    assert [one.number for one in job.new] == [3]


def test_a_spare_that_took_a_seat_and_is_lost_at_once_is_not_new():
    job, _ = spares("xxxx", 1)
    first = Left("acd", True, -1, Left("ac", False, -1))
    job.comm.Shrink = lambda: first
    job.regroup()
    assert job.new == [] and [one.number for one in job.seats] == [0, 2]


def test_none_goes_on_where_a_seat_ends():
    job, _ = spares("xxx", 1)
    job.comm.Shrink = lambda: Left("abc", False, SPLIT | 2)
    assert job.regroup()[2] == 2
    job.comm.Shrink = lambda: Left("abc", False, -1)
    assert job.regroup(3)[2] == 3


def test_seats_are_numbered_by_their_places_and_each_spare_is_alone():
    job, _ = spares("xxxxxx", 3)
    job._take_left(Comm("acdef"), Regrouped([], [], []))
    job.comm.Split = lambda color, key: (color, key)
    found = []
    for job.comm.rank in range(5):
        found.append(job.split())
    assert found == [(0, 0), (0, 2), (0, 1), (5, 0), (6, 0)]


@pytest.mark.parametrize(("failed", "all_seats"), [("", False), ("a", False), ("ac", False), ("ab", True)])
def test_a_spare_waits_until_all_seats_have_ended(failed, all_seats):
    job, _ = spares("xxxx", 2)
    job.comm.Get_failed = lambda: SimpleNamespace(
        size=len(failed), Translate_ranks=lambda ranks, group: ["abcd".index(failed[rank]) for rank in ranks]
    )
    assert job._has_lost_all() is all_seats


def test_a_spare_whose_launcher_has_ended_ends(monkeypatch):
    def leave(code):
        raise SystemExit(code)

    job, _ = spares("xx", 1)
    job.comm.Is_revoked, job._has_lost_all = lambda: False, iter([False, False, True]).__next__
    monkeypatch.setattr(spares_module.os, "getppid", iter([7, 7, 1]).__next__)
    monkeypatch.setattr(spares_module.os, "_exit", leave)
    with pytest.raises(SystemExit):
        job.wait()


def test_a_spare_does_not_begin_after_the_seats_have_ended():
    job, _ = spares("xx", 1)
    for job.comm.revoked in (False, True):
        job.comm.Is_revoked, job._has_begun = lambda: job.comm.revoked, lambda seat: True
        assert job.wait_for_begin() is not job.comm.revoked


def test_a_spare_that_was_called_has_begun_though_a_rank_is_lost_just_after():
    job, _ = spares("xxx", 1)
    job.comm.rank, job.comm.revoked = 2, False
    job.comm.Is_revoked, job.comm.Iprobe = lambda: job.comm.revoked, lambda place: place == 0

    def revoked(buffer, place):
        job.comm.revoked = True
        raise RankLostError("revoked")

    job.comm.Recv = revoked
    assert job.wait_for_begin()


def test_a_seats_call_to_begin_is_received():
    """Else that seat, which sends synchronously, waits for ever."""
    job, _ = spares("xxx", 1)
    job.comm.rank, received = 2, []
    job.comm.Is_revoked, job.comm.Iprobe = lambda: False, lambda place: place == 1
    job.comm.Recv = lambda buffer, place: received.append(place)
    assert job.wait_for_begin() and received == [1]


def test_each_spare_that_takes_a_place_is_logged_with_the_number_that_is_left_then(caplog):
    job, _ = spares("xxxxxxx", 3)
    reserve(job, Left("adefg", False, -1))._regroup(job)
    assert [re.findall(r"of rank (\d); (\d) spare", text)[0] for text in caplog.messages] == [("1", "2"), ("2", "1")]


@pytest.mark.parametrize(
    ("hosts", "in_set_up", "left", "lost", "places"),
    [
        ("xxxxx", [(0, 0)], ["bde"], ["rank 1 (process 102 on x, at the start rank 2)"], ["0"]),
        ("xxxxx", [], ["ade", "ae"], [f"rank {k} (process 10{k} on x)" for k in (1, 2, 3)], ["1"]),  # seat 3 became 2
        ("xyyzz", [], ["bce"], ["rank 0 (process 100 on x)", "rank 3 (process 103 on z)"], ["3"]),  # now rank 2
        ("yxxxx", [(0, 0), (0, 1)], ["cde"], [], ["0"]),  # that of seat 1
        (
            "xxxxx",
            [],
            ["acde", "acd"],
            ["rank 1 (process 101 on x)", "rank 1 (process 104 on x, at the start rank 4)"],
            [],
        ),
    ],
)
def test_lost_ranks_and_places_have_the_numbers_that_the_log_has_named(caplog, hosts, in_set_up, left, lost, places):
    job, _ = spares(hosts, 1)
    shrunk = [Left(names, k < len(left), -1) for k, names in enumerate(left, 1)]
    ranks = reserve(job, *shrunk)
    ranks.lost = [LostRank(rank, "x", 100 + first, first) for rank, first in in_set_up]
    ranks.firsts = [one.number for one in job.seats if one.number not in [first for _, first in in_set_up]]
    shrunk[-1].rank = 1 if in_set_up else 0  # that of a rank that reports_losses
    assert [str(one) for one in ranks._regroup(job)] == lost
    assert re.findall(r"takes the place of rank (\d)", caplog.text) == places


@pytest.mark.parametrize(
    ("known", "left", "empty"), [((), "xxxx", False), ((0,), "abcd", False), ((1,), "abcd", True), ((1,), "abc", False)]
)
def test_places_of_ranks_that_were_lost_before_are_filled_while_spares_wait(known, left, empty):
    job, _ = spares("xxxx", len(left) - 3)
    ranks = reserve(job)
    ranks.lost = [LostRank(first, "x", 100 + first, first) for first in known]
    assert ranks.has_empty_places is empty
    if empty:
        job.comm.Shrink = lambda: Left("acd", False, -1)
        ranks._regroup(job)
        assert not ranks.has_empty_places and [one.number for one in job.seats] == [0, 3, 2]


def reserve(job: Spares, *left: Left) -> Reserve:
    """Return what a World does with these spares, whose next Shrinks return these communicators."""
    for comm, then in zip((job.comm, *left), left, strict=False):
        comm.Shrink = lambda then=then: then
    ranks = Reserve()
    ranks.spares, ranks.fills_places, ranks.lost = job, True, []
    ranks.firsts = [one.number for one in job.seats]
    return ranks


@pytest.mark.parametrize("count", [0, 1, 2])
def test_of_two_sides_of_a_cut_that_follows_a_loss_one_at_most_goes_on(count):
    for hosts, first in itertools.product(itertools.product("xy", repeat=5), range(5)):
        goes_on = []
        for side in "xy":
            job, names = spares("".join(hosts), count)
            left = names.replace(names[first], "")
            near = "".join(name for name in left if hosts[names.index(name)] == side)
            if near:
                ranks = reserve(job, Left(left, True, -1), Left(near, False, -1))
                ranks._regroup(job)
                goes_on.append(bool(job.seats) and not ranks.is_cut_off)
        assert sum(goes_on) <= 1, (hosts, first)


def test_a_side_that_was_cut_off_stays_so_and_no_rank_is_lost_twice():
    job, _ = spares("xyyx", 1)
    ranks = reserve(job, Left("ad", False, -1), Left("ad", False, -1))
    ranks.lost = [LostRank(1, "y", 101, 1)]  # in set-up
    assert [one.first for one in ranks._regroup(job)] == [2]
    assert ranks.is_cut_off
    ranks._regroup(job)
    assert ranks.is_cut_off and [one.first for one in ranks.lost] == [1, 2]


def test_a_side_that_was_cut_off_before_spares_took_places_stays_so():
    job, _ = spares("xxx", 1)
    ranks = reserve(job, Left("ac", False, -1))
    ranks.is_cut_off = True
    ranks._regroup(job)
    assert ranks.is_cut_off


def test_where_a_seat_ends_spares_end_too_and_other_seats_say_why():
    job, _ = spares("xxx", 1)
    ranks, codes = reserve(job, Left("abc", False, SPLIT | 2), Left("abc", False, -1)), []
    ranks.leave = codes.append
    with pytest.raises(RanksLostError, match="a rank was lost when others had ended"):
        ranks._regroup(job)
    assert codes == []
    job, _ = spares("xxx", 1)
    ranks, job.comm.rank = reserve(job, Left("abc", False, SPLIT | 2)), 2
    ranks.leave = codes.append
    with pytest.raises(RanksLostError):  # it has left
        ranks._regroup(job)
    assert codes == [2]


def test_a_spare_that_is_not_needed_waits_again():
    job, _ = spares("xxxx", 2)
    ranks = reserve(job, Left("bcd", False, -1), Left("bd", False, -1))
    waits = []
    job.comm.rank, job.wait = 3, lambda: waits.append(job.comm.rank)
    job.comm.Shrink().rank, job.comm.Shrink().Shrink().rank = 2, 1
    assert [one.number for one in (ranks.standby() and job.seats)] == [3, 1]
    assert len(waits) == 2
