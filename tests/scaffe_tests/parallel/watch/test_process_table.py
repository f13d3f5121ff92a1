"""The probe of the process table: which count as stopped, since when, and who acts on them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from mpi4py import MPI

from scaffe.files import lock_owner
from scaffe.files.lock_owner import Owner, this_process
from scaffe.files.process_state import start_of
from scaffe.monitor.record import FORWARD, RANKS, SET_UP, TEST
from scaffe.monitor.watching import ABORT, SAY, SHRINK, Watching
from scaffe.parallel.reserve import LostRank
from scaffe.parallel.spares import JobProcess
from scaffe.parallel.watch import policy, process_table
from scaffe.parallel.watch.process_table import ProcessTable, stopped_at
from scaffe.parallel.watch.watch import Watch
from scaffe.parallel.world import World

PATIENCE = 60


def owner(process: subprocess.Popen[bytes]) -> Owner:
    started = start_of(process.pid)
    assert started is not None
    return replace(this_process(), pid=process.pid, started=started)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes that wait for input."""
    found = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    yield found
    for one in found:
        one.kill()
        one.communicate()


def stop(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


def test_a_rank_of_another_host_is_not_looked_for_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be thousands, of whom the name of the host is known."""
    monkeypatch.setattr(lock_owner, "this_process", lambda: pytest.fail("reads /proc for a rank of another host"))
    assert Owner("another", 0, 0, "", "", 0, "").is_alive() is None


class Covering(Watch):
    """A watch with a probe that gets records of the ranks for which `covers` is true; this rank is `stuck` or not."""

    def __init__(self, covers, stuck=False):
        super().__init__()
        self._probes = [SimpleNamespace(covers=covers, is_stuck=lambda: stuck)]


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def watch(monkeypatch, processes):
    """Return a watch of rank `me` of three, whose other two are the processes, and a function that lets time pass."""
    clock = Clock()
    monkeypatch.setattr(process_table, "time", clock)

    def make(how: str, me: int = 0, is_watched=lambda number: False):
        world = World(MPI.COMM_SELF)
        world.launched = [owner(one) for one in processes]
        world.launched.insert(me, this_process())
        world.firsts = [me]
        world.watch = Covering(is_watched)
        made = ProcessTable(world, PATIENCE, how)

        def let_pass(seconds: int) -> None:
            for _ in range(seconds):
                clock.now += 1
                made.look()

        return made, let_pass

    return make


def test_a_process_is_stopped_only_if_it_is_that_process_and_stopped(processes):
    one, other = map(owner, processes)
    stop(processes[0])
    assert stopped_at(one) is not None
    assert stopped_at(other) is None
    assert stopped_at(replace(one, started=one.started + 1)) is None
    os.kill(one.pid, signal.SIGCONT)
    os.waitpid(one.pid, os.WCONTINUED)
    assert stopped_at(one) is None


def test_it_is_named_once_after_the_stall_time_and_again_after_it_ran(watch, processes, caplog):
    _, let_pass = watch(SAY)
    stop(processes[0])
    let_pass(PATIENCE)
    assert caplog.messages == []
    let_pass(2 * PATIENCE)
    pid = processes[0].pid
    assert [f"its process {pid} has not run for {PATIENCE} s" in text for text in caplog.messages] == [True]
    os.kill(pid, signal.SIGCONT)
    os.waitpid(pid, os.WCONTINUED)
    let_pass(PATIENCE)
    stop(processes[0])
    let_pass(PATIENCE + 1)
    assert len(caplog.messages) == 2


def test_a_pause_of_the_watch_does_not_count(watch, processes, caplog):
    made, let_pass = watch(SAY)
    stop(processes[0])
    let_pass(1)
    process_table.time.now += 100 * PATIENCE
    made.look()
    assert caplog.messages == []


@pytest.mark.parametrize(("lower_runs", "acts"), [(True, False), (False, True)])
def test_the_lowest_that_runs_acts(watch, processes, caplog, lower_runs, acts):
    _, let_pass = watch(SHRINK, me=1)
    stop(processes[1])
    if not lower_runs:
        processes[0].communicate(b"\n")
    let_pass(PATIENCE + 1)
    assert any("rank 2 on" in text and "is killed" in text for text in caplog.messages) is acts
    if acts:
        assert processes[1].wait() == -signal.SIGKILL


def test_what_a_watch_over_stalls_watches_is_left_to_it(watch, processes, caplog):
    _, let_pass = watch(SHRINK, is_watched=lambda number: number == 1)
    stop(processes[0])
    let_pass(2 * PATIENCE)
    assert caplog.messages == []


def test_a_probe_takes_the_place_of_a_former_solvers(processes):
    """Else the former one would go on, and act as that solver's settings say."""
    world, probes = World(MPI.COMM_SELF), []
    world.launched, world.size = [this_process(), owner(processes[0])], 2
    for seconds in (60, 70, 0):
        process_table.watch_processes(world, Watching(stall_seconds=seconds))
        assert [one for one in probes if one in world.watch._probes] == []
        if world.process_table is not None:
            probes.append(world.process_table)
            assert world.watch.thread.is_alive() and world.watch._probes == [world.process_table]
    assert len(probes) == 2 and world.watch.thread is None


@pytest.mark.parametrize(("size", "is_near", "watches"), [(1, True, True), (2, False, True), (1, False, False)])
def test_a_spare_watches_the_others_and_a_rank_alone_on_its_host_itself(processes, size, is_near, watches):
    world = World(MPI.COMM_SELF)
    world.size = size
    if is_near:
        world.launched = [this_process(), owner(processes[0])]
    assert ProcessTable(world, PATIENCE, SAY).is_needed is watches


def test_abort_ends_the_job_for_a_rank_and_kills_a_spare(watch, processes, monkeypatch, caplog):
    made, let_pass = watch(ABORT)
    ended: list[str] = []
    monkeypatch.setattr(policy, "end_job", lambda world, lines: ended.extend(lines))
    made.world.has_spare = lambda number: number == 2
    for one in processes:
        stop(one)
    let_pass(PATIENCE + 1)
    assert len(ended) == 1 and ended[0].startswith("rank 1 on ") and "is stopped" in ended[0]
    assert len(caplog.messages) == 1 and "spare 2 on " in caplog.messages[0]
    assert processes[1].wait() == -signal.SIGKILL


def test_a_rank_that_stays_in_its_set_up_without_a_wait_says_where_once(watch, caplog):
    made, let_pass = watch(SHRINK)
    made.world.size = 3
    let_pass(PATIENCE)
    assert caplog.messages == []
    look = threading.Thread(target=let_pass, args=[2 * PATIENCE])
    look.start()
    look.join()  # the watch's thread looks while this one waits here
    (text,) = caplog.messages
    assert re.match(r"Stall: rank 0 on \S+ has been in set-up for 60 s without waiting for another rank: ", text)
    assert re.search(r"/(threading|test_process_table)\.py, line \d+, in \w+$", text)  # in `join`, or on the way there
    made.world.record.at(SET_UP)  # it moves
    let_pass(PATIENCE + 1)
    assert len(caplog.messages) == 2


@pytest.mark.parametrize("case", ["waits", "moves", "is watched", "trains", "is alone"])
def test_a_rank_that_waits_or_moves_or_is_set_up_says_nothing(watch, caplog, case):
    made, let_pass = watch(SAY, is_watched=lambda number: case == "is watched" and number == 0)
    record = made.world.record
    made.world.size = 1 if case == "is alone" else 3
    if case == "trains":
        record.at(FORWARD, 0)
    with record.waiting(RANKS) if case == "waits" else nullcontext():
        for _ in range(3):
            let_pass(PATIENCE - 1)
            if case == "moves":
                record.at(SET_UP)
    assert caplog.messages == []


@pytest.mark.parametrize(
    "case",
    ["set-up", "after", "MPI reports another", "MPI reports it", "is lost", "no wait", "is watched", "lower runs"],
)
def test_a_rank_that_has_ended_ends_the_job_while_others_wait_for_it(watch, processes, monkeypatch, case):
    """In set-up, and after the training, where no watch gets the ranks' records."""
    ended: list[str] = []
    monkeypatch.setattr(policy, "end_job", lambda world, lines: ended.extend(lines))
    made, let_pass = watch(SAY, int(case == "lower runs"), lambda number: case == "is watched")
    world, process = made.world, processes[1]
    world.firsts = [0, 1] if case == "is lost" else [0, 1, 2]
    missed = {1} if case == "MPI reports another" else {2} if case == "MPI reports it" else set()
    monkeypatch.setattr(world, "missed", lambda: missed)
    world.record.at(TEST if case == "after" else SET_UP)
    process.communicate(b"\n")
    with nullcontext() if case == "no wait" else world.record.waiting(RANKS):
        let_pass(PATIENCE)
        assert ended == []
        let_pass(1)
    host = world.launched[2].host
    told = f"rank 2 (process {process.pid}) on {host} has ended, which MPI does not report"
    assert ended == ([told] if case in ("set-up", "after", "MPI reports another") else [])


def test_a_rank_that_ended_before_the_watch_began_ends_the_job(watch, processes, monkeypatch):
    ended: list[str] = []
    monkeypatch.setattr(policy, "end_job", lambda world, lines: ended.extend(lines))
    world = watch(SAY)[0].world
    world.firsts = [0, 1, 2]
    processes[1].communicate(b"\n")
    later = ProcessTable(world, PATIENCE, SAY)
    with world.record.waiting(RANKS):
        for _ in range(PATIENCE + 1):
            process_table.time.now += 1
            later.look()
    assert len(ended) == 1 and ended[0].startswith(f"rank 2 (process {processes[1].pid}) on ")


@pytest.mark.parametrize("case", ["", "MPI reports it", "in a spare"])
def test_a_spare_that_has_ended_ends_the_job_unless_mpi_reports_it(watch, processes, monkeypatch, case):
    ended: list[str] = []
    monkeypatch.setattr(policy, "end_job", lambda world, lines: ended.extend(lines))
    made, let_pass = watch(SHRINK)
    made.world.record.at(FORWARD)
    members = [JobProcess(number, one.host, [0], one.pid) for number, one in enumerate(made.world.launched)]
    known = [members[2]] if case == "MPI reports it" else [members[1]]
    places, me = {"seats": members[:2], "waiting": members[2:]}, case == "in a spare"
    made.world.spares = SimpleNamespace(**places, is_waiting=me, ended=lambda: known)
    processes[1].communicate(b"\n")
    let_pass(PATIENCE)
    assert ended == []
    let_pass(1)
    told = f"spare 2 (process {processes[1].pid}) on {members[2].host} has ended, which MPI does not report"
    assert ended == ([] if case else [told])


TRAINING = [
    "",
    "not stuck",
    "MPI reports it",
    "MPI can't be asked",
    "MPI reports another",
    "is lost",
    "is lost just now",
]


@pytest.mark.parametrize("case", TRAINING)
def test_a_rank_that_has_ended_in_training_ends_the_job_once_mpi_has_had_its_time(watch, processes, monkeypatch, case):
    """Also while MPI knows of another one: else a rank that exits during a recovery would be waited for for ever."""
    ended: list[str] = []
    monkeypatch.setattr(policy, "end_job", lambda world, lines: ended.extend(lines))
    made, let_pass = watch(SAY)
    world, process = made.world, processes[1]
    world.firsts, world.watch = [0, 1, 2], Covering(lambda number: True, stuck=case != "not stuck")
    lost = LostRank(2, "host", process.pid, 2)

    def missed() -> set[int]:
        if case == "is lost just now":  # by a recovery, whose new communicator misses none
            world.lost.append(lost)
        return {"MPI reports another": {1}, "MPI reports it": {2}}.get(case, set())

    monkeypatch.setattr(world, "missed", missed)
    if case == "MPI can't be asked":
        monkeypatch.setattr(MPI, "Query_thread", lambda: MPI.THREAD_SERIALIZED)
    world.lost = [lost] if case == "is lost" else []
    world.record.at(FORWARD)
    process.communicate(b"\n")
    let_pass(PATIENCE)
    assert ended == []
    let_pass(1)
    told = f"rank 2 (process {process.pid}) on {world.launched[2].host} has ended, which MPI does not report"
    assert ended == ([told] if case in ("", "MPI reports another") else [])


def test_a_rank_that_is_seen_again_has_its_whole_time_again(watch, processes, monkeypatch):
    ended: list[str] = []
    monkeypatch.setattr(policy, "end_job", lambda world, lines: ended.extend(lines))
    made, let_pass = watch(SAY)
    made.world.firsts, missed = [0, 1, 2], [set[int](), {2}, set[int]()]
    monkeypatch.setattr(made.world, "missed", lambda: missed[0])
    processes[1].communicate(b"\n")
    with made.world.record.waiting(RANKS):
        let_pass(PATIENCE)
        missed.pop(0)
        let_pass(1)
        missed.pop(0)
        let_pass(PATIENCE)
        assert ended == []
        let_pass(1)
    assert len(ended) == 1
