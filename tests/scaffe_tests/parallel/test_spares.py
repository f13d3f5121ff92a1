"""Spares: who takes a lost rank's place."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from scaffe.parallel.spares import JobProcess, Regrouped, Spares


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
    assert [seat for seat, _ in changed.lost] == [place for place in places if place < first]
    assert [one.number for one in changed.ended] == [place for place in places if place >= first]


def test_a_spare_that_has_taken_a_place_may_be_lost_too():
    job, _ = spares("xxxxx", 2)
    for names in ("acde", "ace"):
        job._take_left(Comm(names), Regrouped([], [], []))
    assert [one.number for one in job.seats] == [0, 4, 2]
    assert job.waiting == [] and job.size == 3
