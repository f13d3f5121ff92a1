"""A World that has lost ranks: what is noticed, agreed on, done again, and how the ranks that are left end."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
from mpi4py import MPI

from collectives import RankLostError
from scaffe.errors import AgreedError, RanksLostError, ScaffeError
from scaffe.files.lock_owner import this_process
from scaffe.files.process_state import start_of
from scaffe.parallel import world as worlds
from scaffe.parallel.reserve import LostRank
from scaffe.parallel.world import World

LOST = RankLostError("gone")


class Comm:
    """A communicator of processes by their names, which notes in `events` what is called."""

    def __init__(self, names: str, me: str, failed: str = "", agrees: bool = True):
        self.names, self.size, self.rank, self.failed, self.agrees = names, len(names), names.index(me), failed, agrees
        self.me, self.events, self.breaks = me, list[str](), set[str]()
        self.group = SimpleNamespace(names=names, Translate_ranks=self._translated)

    def _translated(self, ranks, other):
        return [other.names.find(self.names[rank]) for rank in ranks]  # negative: not there

    def _call(self, name: str) -> None:
        self.events.append(name)
        if name in self.breaks:
            raise LOST

    def Shrink(self) -> Comm:
        self.events.append("Shrink")
        return Comm("".join(name for name in self.names if name not in self.failed), self.me)

    def Agree(self, flag: int) -> bool:
        self._call(f"Agree({flag})")
        return bool(flag) and self.agrees

    def Get_failed(self):
        return SimpleNamespace(Get_size=lambda: len(self.failed))

    def Revoke(self) -> None:
        self._call("Revoke")

    def Barrier(self) -> None:
        self._call("Barrier")

    def Abort(self, code: int) -> None:
        self.events.append(f"Abort({code})")


@pytest.fixture
def world(monkeypatch) -> Iterator[Callable[..., World]]:
    """Make the World of a process of a job of these hosts, where MPI tolerates faults."""
    monkeypatch.setattr(worlds, "can_shrink", lambda: True)
    monkeypatch.setattr(worlds, "end_launcher", lambda process: None)
    monkeypatch.setattr(worlds.logs, "start", lambda rank: None)

    def make(hosts: str = "xxyy", me: str = "a", failed: str = "", **given) -> World:
        made = World(MPI.COMM_SELF)
        names = "abcdefgh"[: len(hosts)]
        made.comm = comm = Comm(names, me, failed, **given)
        made.rank, made.size, made.firsts = comm.rank, comm.size, [*range(comm.size)]
        made.places = [(host, [k]) for k, host in enumerate(hosts)]
        made.group = None
        made.pids, made.gpus = [100 + k for k in range(comm.size)], [f"gpu {k}" for k in range(comm.size)]
        return made

    return make


def test_what_belongs_to_a_rank_stays_with_it_when_others_are_lost(world) -> None:
    one = world("xyxyx", me="d", failed="bc")
    assert [(lost.rank, lost.host, lost.pid, lost.first) for lost in one.shrink()] == [
        (1, "y", 101, 1),
        (2, "x", 102, 2),
    ]
    assert (one.rank, one.size, one.firsts) == (1, 3, [0, 3, 4])
    assert (one.places[1], one.pids, one.gpus[1]) == (("y", [3]), [100, 103, 104], "gpu 3")
    one.comm.failed = "a"
    assert [(lost.rank, lost.pid, lost.first) for lost in one.shrink()] == [(0, 100, 0)]
    assert (one.rank, one.firsts, [lost.first for lost in one.lost]) == (0, [3, 4], [1, 2, 0])


def test_a_side_that_was_cut_off_stays_so(world) -> None:
    one = world("xxyyy", failed="cde")
    one.shrink()
    assert one.is_cut_off
    one.comm.failed = "b"
    one.shrink()
    assert one.is_cut_off
    other = world("xxyyy", me="c", failed="ab")
    other.shrink()
    assert not other.is_cut_off


@pytest.mark.parametrize(
    ("raised", "failed", "agrees", "done", "events"),
    [
        (None, "", True, True, ["Agree(True)"]),
        (None, "", False, False, ["Agree(True)"]),  # another rank has not done it
        (None, "b", True, False, ["break off", "Agree(False)"]),  # MPI knows of a loss that no call has reported
        (LOST, "", True, False, ["break off", "Agree(False)"]),
        (pickle.UnpicklingError(), "", True, None, []),  # no loss
        (ScaffeError("no such file"), "b", True, None, []),
    ],
)
def test_work_is_done_once_all_ranks_have_done_it(monkeypatch, world, raised, failed, agrees, done, events) -> None:
    def work() -> None:
        if raised is not None:
            raise raised

    one = world(failed=failed, agrees=agrees)
    attempt = lambda: one.attempt(work, lambda: one.comm.events.append("break off"))  # noqa: E731
    if done is None:
        with pytest.raises(type(raised)):
            attempt()
    else:
        assert attempt() is done
    assert one.comm.events == events


def test_an_agreement_that_a_loss_breaks_off_is_none(world) -> None:
    one = world()
    one.comm.breaks = {"Agree(True)"}
    assert one.attempt(lambda: None, lambda: None) is False


def test_a_part_of_the_set_up_is_done_again_by_those_that_are_left(world, caplog) -> None:
    one, done = world(failed="b"), []
    first = one.comm
    assert one.retried(lambda: done.append(one.size) or len(done)) == 2
    assert done == [4, 3] and first.events == ["Revoke", "Agree(False)", "Revoke", "Shrink"]
    assert [text for text in caplog.messages if "in set-up" in text] == ["Lost rank 1 (process 101 on x), in set-up"]


@pytest.mark.parametrize("failed", ["", "b"])
def test_a_torn_message_is_a_loss_where_a_rank_is_lost(world, failed) -> None:
    def torn(*given: object) -> None:
        raise ValueError("a part of an object")

    one = world(failed=failed)
    one.comm.allgather = one.comm.bcast = one.comm.Allgather = torn
    for call in (lambda: one.allgather(1), lambda: one.bcast(1)):
        with pytest.raises(RankLostError if failed else ValueError):
            call()


def test_spares_wait_until_they_are_revoked_too(world) -> None:
    one, revoked = world(), []
    one.comm.breaks = {"Revoke"}  # another rank has revoked
    one.spares = SimpleNamespace(is_waiting=False, revoke=lambda: revoked.append(one.fills_places))
    for one.fills_places in (False, True):
        one.revoke()
    assert revoked == [True] and one.comm.events == ["Revoke"] * 2 and one.revoked


@pytest.mark.parametrize("breaks", [set(), {"Barrier"}])
def test_ranks_leave_once_all_have_come_and_dismiss_the_spares(monkeypatch, world, breaks) -> None:
    one = world()
    one.comm.breaks = breaks
    monkeypatch.setattr(one, "dismiss_spares", lambda code: one.comm.events.append(f"dismissed {code}"))
    monkeypatch.setattr(os, "_exit", lambda code: one.comm.events.append(f"exit {code}"))
    one.leave(3)
    assert one.comm.events == ["Barrier", "dismissed 3", "exit 3"]


@pytest.mark.parametrize(
    ("error", "me", "breaks", "code", "events", "said"),
    [
        (RanksLostError("ranks left: 1"), "a", set(), 76, ["Barrier"], ["scaffe: ranks left: 1"]),
        (RanksLostError("ranks left: 1"), "b", set(), 76, ["Barrier"], []),  # the root says it
        (RanksLostError("x"), "b", {"Barrier"}, 76, ["Barrier", "Abort(76)"], ["scaffe: rank 1: x"]),  # if it is left
        (RanksLostError("x"), "a", {"Barrier"}, 76, ["Barrier", "Abort(76)"], ["scaffe: x"]),
        (AgreedError("no file"), "a", set(), 2, ["Barrier"], ["scaffe: no file"]),
        (ScaffeError("no file"), "b", set(), 2, ["Abort(2)"], ["scaffe: rank 1: no file"]),
        (
            RuntimeError("can't start new thread"),
            "b",
            set(),
            2,
            ["Abort(2)"],
            ["scaffe: rank 1: this process can"],
        ),
        (
            MemoryError(),
            "b",
            set(),
            2,
            ["Abort(2)"],
            ["scaffe: rank 1: out of memory\n"],
        ),
        (LOST, "b", set(), 1, ["Abort(1)"], ["scaffe: rank 1: gone"]),
        (MPI.Exception(MPI.ERR_REVOKED), "b", set(), 1, ["Abort(1)"], ["scaffe: rank 1: a rank was lost: MPI_ERR_"]),
    ],
)
def test_an_end_after_a_loss_has_its_exit_code_and_one_voice(
    monkeypatch, world, error, me, breaks, code, events, said
) -> None:
    told: list[str] = []
    monkeypatch.setattr(worlds.abort, "write", told.append)
    one = world(me=me)
    one.comm.breaks = breaks
    assert one.fail(error) == code
    assert one.comm.events == events
    assert len(told) == len(said) and all(text.startswith(start) for text, start in zip(told, said, strict=True))


def test_processes_of_this_host_that_count_as_lost_are_ended_and_no_others(monkeypatch) -> None:
    """Not one that has the id of a process that has ended, nor one of another host, nor one that is not lost."""
    here = this_process()
    children = [subprocess.Popen(["sleep", "900"]) for _ in range(4)]
    launched = [here, *(replace(here, pid=one.pid, started=start_of(one.pid) or 0) for one in children)]
    launched[2] = replace(launched[2], started=1)
    launched[3] = replace(launched[3], host="elsewhere")
    lost = [LostRank(rank, one.host, one.pid, rank) for rank, one in enumerate(launched[:4])]
    ended: list[tuple[int, int]] = []
    try:
        with monkeypatch.context() as watched:  # since a process ends some time after this
            watched.setattr(os, "kill", lambda *given: ended.append(given))
            World.end_lost(SimpleNamespace(host=here.host, launched=launched), lost)
        assert ended == [(children[0].pid, signal.SIGKILL)]
    finally:
        for one in children:
            one.kill()
            one.wait()
