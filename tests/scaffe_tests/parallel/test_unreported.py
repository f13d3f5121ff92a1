"""Processes that have ended, and that MPI does not report, are noticed after the time that MPI has for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from mpi4py import MPI

from scaffe.lock_owner import Owner, this_process
from scaffe.parallel.reserve import LostRank
from scaffe.parallel.unreported import Missed, Unreported
from scaffe.parallel.world import World
from scaffe.process_state import start_of

LOOKS = 60  # of a second, until a process counts as unreported
pytestmark = pytest.mark.mpi_skip


def child(text: str) -> tuple[subprocess.Popen[bytes], Owner]:
    """Return a process that runs this program, and its id and start."""
    process = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE)
    return process, replace(this_process(), pid=process.pid, started=start_of(process.pid) or 0)


@pytest.fixture
def world() -> Iterator[World]:
    """A World whose rank 1, the last of the launch, has ended with exit code 1, and whose rank 2 runs."""
    world = World(MPI.COMM_SELF)
    processes = [child("input()"), child("raise SystemExit(1)")]
    world.firsts, world.launched = [0, 2, 1], [*world.launched, *(owner for _, owner in processes)]
    os.waitid(os.P_PID, processes[1][0].pid, os.WEXITED | os.WNOWAIT)  # a zombie, as its launcher may leave it
    yield world
    for process, _ in processes:
        process.kill()
        process.communicate()


def looks(watch: Unreported, number: int) -> list[str]:
    """Return what is told in so many looks."""
    return [told for _ in range(number) if (told := watch.look())]


def test_a_rank_that_has_ended_is_told_once_mpi_has_had_its_time(world) -> None:
    watch = Unreported(world, range(3), LOOKS / 4, 1 / 4)
    assert looks(watch, LOOKS) == []
    process = world.launched[2]
    assert watch.look() == f"rank 1 (process {process.pid}) on {process.host} has ended, which MPI does not report"


def test_a_rank_of_another_host_and_one_that_counts_as_lost_are_not_told(world) -> None:
    assert looks(Unreported(world, [0, 2], LOOKS, 1), 2 * LOOKS) == []
    lost, world.lost = world.lost, [LostRank(1, world.host, world.launched[2].pid, 2)]
    assert looks(Unreported(world, range(3), LOOKS, 1), 2 * LOOKS) == []
    world.lost, world.launched[2] = lost, replace(world.launched[2], machine="elsewhere")  # not visible from here
    assert looks(Unreported(world, range(3), LOOKS, 1), 2 * LOOKS) == []


def test_while_mpi_knows_of_its_loss_or_cannot_be_asked_nothing_is_told(world, monkeypatch) -> None:
    watch = Unreported(world, range(3), LOOKS, 1)
    with monkeypatch.context() as patched:
        patched.setattr(world, "missed", lambda: {2})
        assert looks(watch, 2 * LOOKS) == []
    with monkeypatch.context() as patched:
        patched.setattr(MPI, "Query_thread", lambda: MPI.THREAD_SERIALIZED)
        assert looks(watch, 2 * LOOKS) == []
    assert watch.look().startswith("rank 1 ")


def test_it_is_told_while_mpi_knows_of_another_rank_alone(world, monkeypatch) -> None:
    """Else a rank that exits while the others recover from another one's loss would be waited for for ever."""
    monkeypatch.setattr(world, "missed", lambda: {1})
    assert len(looks(Unreported(world, range(3), LOOKS, 1), LOOKS + 1)) == 1


def test_a_loss_that_a_recovery_takes_in_meanwhile_is_not_told(world, monkeypatch) -> None:
    """The ranks that are left have a new communicator, by which MPI knows of no loss."""

    def missed() -> set[int]:
        world.lost.append(LostRank(1, world.host, world.launched[2].pid, 2))
        return set()

    monkeypatch.setattr(world, "missed", missed)
    assert looks(Unreported(world, range(3), LOOKS, 1), LOOKS + 1) == []


def test_a_process_is_missed_after_so_many_looks_in_a_row() -> None:
    missed = Missed(LOOKS / 4, 1 / 4)
    assert not any(missed.look(1, True) for _ in range(LOOKS))
    assert not missed.look(1, False)  # it is seen again
    assert [missed.look(1, True) for _ in range(LOOKS + 1)] == [False] * LOOKS + [True]
    assert not missed.look(2, True)
