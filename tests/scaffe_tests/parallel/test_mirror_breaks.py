"""Mirrors whose messages a lost rank breaks off: the buddy keeps the last one of which all has arrived."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from collectives import RankLostError
from scaffe.parallel import mirror
from scaffe.parallel.mirror import Mirror
from scaffe.parallel.world import World


class Alone:
    """Both ranks' communicator: this process sends to itself, in the order of the messages."""

    is_revoked = False

    def Dup(self):
        return self

    def Isend(self, values, peer):
        return MPI.COMM_SELF.Isend(values, 0)

    def Irecv(self, values, peer):
        return MPI.COMM_SELF.Irecv(values, 0)

    def Revoke(self):
        self.is_revoked = True


class Broken:
    """A message that a lost rank breaks off: its wait ends once the communicator is revoked; then it is none."""

    def __init__(self, comm: Alone):
        self.comm, self.is_none = comm, False

    def Test(self):
        if not self.is_none:
            self.is_none = True
            raise RankLostError("the root is lost")
        return True

    def Wait(self):
        assert self.is_none or self.comm.is_revoked, "it would not return"
        return self.Test()


@pytest.fixture
def pair(monkeypatch) -> tuple[Mirror, Mirror]:
    """The mirrors of the root, and of its buddy."""
    monkeypatch.setattr(mirror, "PIECE", 2)
    pair = Mirror(10), Mirror(10)
    recover(pair)
    return pair


def recover(pair: tuple[Mirror, Mirror], hosts: str = "ab") -> None:
    """Open the mirrors of a root's array, in two messages, for ranks of these hosts."""
    comm, record, array = Alone(), World(MPI.COMM_SELF).record, np.zeros(4, np.float32)
    for rank, one in enumerate(pair):
        places = [(host, [0]) for host in hosts]
        one.open(SimpleNamespace(rank=rank, root=0, is_root=not rank, comm=comm, places=places, record=record), [array])


def feed(pair: tuple[Mirror, Mirror], iteration: int) -> None:
    """Begin a mirror, whose values are the iteration."""
    array = pair[0]._arrays[0]
    array[...] = iteration
    for one in reversed(pair):
        one.feed(iteration, iteration)
    array[...] = -1  # by the iteration's updates


def kept(one: Mirror) -> list[float]:
    """Return the iteration of the mirror that a rank has, and its values; -1 without one."""
    return [one.kept.about, *one.kept.arrays[0]] if one.kept else [-1]


def test_a_mirror_counts_once_all_of_it_has_arrived(pair) -> None:
    for iteration, before in ((0, [-1]), (10, [0] * 5), (20, [10] * 5)):
        feed(pair, iteration)
        assert kept(pair[1]) == before
    pair[1].break_off()
    assert kept(pair[1]) == [20] * 5, "all of it had arrived"


@pytest.mark.parametrize("notices", ["break_off", "progress"])
def test_half_a_mirror_is_dropped(pair, notices: str) -> None:
    feed(pair, 0)
    feed(pair, 10)
    pair[1]._requests.pop().Wait()
    pair[1]._requests.append(Broken(pair[1]._comm))
    if notices == "progress":
        with pytest.raises(RankLostError):
            pair[1].progress()
    for one in pair:
        one.break_off()
    assert pair[1].idle() and kept(pair[1]) == [0] * 5
    pair[1].break_off()  # another rank is lost
    assert kept(pair[1]) == [0] * 5
    recover(pair)
    feed(pair, 11)  # at once
    assert kept(pair[1]) == [0] * 5
    pair[1].finish()
    assert kept(pair[1]) == [11] * 5


def test_a_rank_that_is_no_longer_the_buddy_drops_its_mirror(pair) -> None:
    feed(pair, 0)
    pair[1].finish()
    recover(pair, "aab")
    assert kept(pair[1]) == [0] * 5, "until there is another"
    pair[1].feed(1, 1)
    assert pair[1].kept is None


def test_a_mirror_of_what_is_no_longer_true_is_forgotten(pair) -> None:
    feed(pair, 0)
    for one in pair:
        one.forget()
    assert kept(pair[1]) == [-1]
    feed(pair, 3)
    pair[1].finish()
    assert kept(pair[1]) == [3] * 5
