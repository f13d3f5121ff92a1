"""Which ranks --stall shrink gives up, and that no other process is killed in a rank's place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from mpi4py import MPI

from scaffe.files.lock_owner import this_process
from scaffe.files.process_state import start_of
from scaffe.monitor.record import BACKWARD, FORWARD, LOSS, RANKS, SNAPSHOT, SUMS, UPDATE, Observation
from scaffe.monitor.watching import SHRINK
from scaffe.parallel.watch import hanging as module
from scaffe.parallel.watch.hanging import RAN, Hanging, Standing, hanging
from scaffe.parallel.watch.policy import Policy
from scaffe.parallel.watch.report import LayerNames
from scaffe.parallel.world import World

S = 10**9
NOW = 1000 * S
PATIENCE = 60.0
WAITS, RUNS = (UPDATE, -1, SUMS, 70, 1), (FORWARD, 1, 0, 2, 1)  # operation, layer, wait, idle and silent seconds


class Named(LayerNames):
    def __init__(self) -> None:
        self.names, self.reading = [["data", "conv1", "loss"]], [[True, False, False]]


def seen(rank: int, operation: int, layer: int, wait: int, idle: float, silent: float) -> Observation:
    row = 7, 0, operation, layer, wait, NOW - int(idle * S), NOW - int(silent * S)
    return Observation(rank, "host", row, NOW)


def given_up(*ranks: tuple, watched: float = 1000) -> tuple[list[int], list[int]]:
    """Return the ranks that do not run, and those that hang in a layer, after so many seconds that were watched."""
    all_ranks = [(seen(rank, *one), Standing()) for rank, one in enumerate(ranks)]
    for one, still in all_ranks:
        still.watch(one, watched)
    stopped, computing = hanging(all_ranks, Named().is_computing, PATIENCE)
    return [one.rank for one in stopped], [one.rank for one in computing]


@pytest.mark.parametrize(
    ("hung", "expected"),
    [
        ((UPDATE, -1, SUMS, 65, 65), ([1], [])),  # stopped while it waited
        ((BACKWARD, 1, 0, 65, 65), ([1], [])),
        ((BACKWARD, 1, 0, 150, 65), ([1], [])),
        ((BACKWARD, 1, 0, 65, 1), ([], [1])),
        ((BACKWARD, 1, 0, 55, 1), ([], [])),
        ((FORWARD, 0, 0, 500, 1), ([], [])),  # reads
        ((SNAPSHOT, -1, 0, 500, 1), ([], [])),  # writes
        ((UPDATE, -1, 0, 500, 1), ([], [])),  # a user's function
        ((LOSS, -1, RANKS, 500, 1), ([], [])),  # waits
    ],
)
def test_a_rank_that_does_not_run_or_computes_one_layer_for_too_long_is_given_up(hung, expected) -> None:
    assert given_up(WAITS, hung, RUNS) == expected


def test_no_rank_is_given_up_before_another_has_waited_for_it() -> None:
    for others in (RUNS, (UPDATE, -1, SUMS, 55, 1), (UPDATE, -1, SUMS, 500, 35), (UPDATE, -1, SUMS, 500, 61)):
        assert 1 not in sum(given_up(others, (BACKWARD, 1, 0, 90, 1)), [])


def test_a_rank_in_a_layer_has_twice_the_time_while_another_does_not_run() -> None:
    assert given_up(WAITS, (UPDATE, -1, SUMS, 90, 90), (FORWARD, 1, 0, 90, 1)) == ([1], [])
    assert given_up(WAITS, (UPDATE, -1, SUMS, 150, 150), (FORWARD, 1, 0, 150, 1)) == ([1], [2])


def test_only_time_that_was_watched_counts_and_a_rank_that_moves_begins_anew() -> None:
    assert given_up(WAITS, (BACKWARD, 1, 0, 90, 90), watched=50) == ([], [])
    still = Standing()
    for idle in (30, 60, 1, 11):
        still.watch(seen(1, BACKWARD, 1, 0, idle, 0), 20)
    assert (still.idle, still.silent) == (11, 0)


@pytest.fixture
def ended(monkeypatch) -> list[tuple[int, int]]:
    """The processes that are killed, with the signal."""
    ended: list[tuple[int, int]] = []
    kill = os.kill
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append((pid, number)) if number else kill(pid, 0))
    return ended


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def watch(monkeypatch) -> tuple[Hanging, Clock]:
    """What rank 0 of two gives up: rank 1 is a process that has started, and ended if told."""
    clock, world = Clock(), World(MPI.COMM_SELF)
    monkeypatch.setattr(module, "time", clock)
    world.size, world.firsts = 2, [0, 1]
    world.launched.append(replace(this_process(), pid=os.getppid(), started=start_of(os.getppid())))
    return Hanging(Policy(world, SHRINK), [0, 1], PATIENCE, 1.0, Named()), clock


def watched(watch: Hanging, clock: Clock, *rows: tuple) -> None:
    """Let two minutes pass in which rank 1 does not run."""
    for _ in range(120):
        clock.now += 1
        watch.look([seen(rank, *row) for rank, row in enumerate(rows)], Counter())


def test_a_process_that_does_not_run_is_killed_once(watch, ended, caplog) -> None:
    watched(*watch, (UPDATE, -1, SUMS, 120, 0), (UPDATE, -1, SUMS, 120, 120))
    assert ended == [(os.getppid(), signal.SIGKILL)]
    who = f"Stall: rank 1 on {this_process().host} is given up"
    assert caplog.messages == [f"{who}: its process has not run for 120 s; process {os.getppid()} is killed"]


def test_the_lowest_rank_of_the_host_that_runs_kills(watch, ended) -> None:
    watch[0].rank = 1
    watch[0]._processes.reverse()
    watched(*watch, (UPDATE, -1, SUMS, 120, 120), (UPDATE, -1, SUMS, 120, 0))
    assert ended == [(os.getppid(), signal.SIGKILL)]


def test_a_process_of_another_host_is_not_killed(watch, ended) -> None:
    watch[0].local = [0]
    watched(*watch, (UPDATE, -1, SUMS, 120, 0), (UPDATE, -1, SUMS, 120, 120))
    assert ended == []


def test_a_rank_that_hangs_in_a_layer_ends_itself_alone(watch, ended) -> None:
    watched(*watch, (UPDATE, -1, SUMS, 120, 0), (BACKWARD, 1, 0, 120, 1))
    assert ended == []
    watched(*watch, (BACKWARD, 1, 0, 61, 1), (UPDATE, -1, SUMS, 120, 0))
    assert {*ended} == {(os.getpid(), signal.SIGKILL)}


def test_a_pause_of_the_watchdog_is_not_the_ranks(watch) -> None:
    watch[1].now += PATIENCE - 1
    watch[0].look([seen(rank, UPDATE, -1, SUMS, 120, 120) for rank in range(2)], Counter())
    assert watch[0]._standing[1].silent == 2


def test_a_process_that_has_ended_or_whose_id_is_another_ones_is_not_killed(watch, ended) -> None:
    number, process = watch[0]._processes[1]
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    others = {"started": process.started + 1}, {"pid": child.pid}, {"machine": "a container of its own"}
    for other in (replace(process, **one) for one in others):
        watch[0]._processes[1] = number, other
        watch[0]._given_up.clear()
        watched(*watch, (UPDATE, -1, SUMS, 120, 0), (UPDATE, -1, SUMS, 120, 120))
    assert ended == []


@pytest.mark.parametrize("local", [[0], [0, 1]], ids=["on another host", "on this host"])
@pytest.mark.parametrize(("ran", "ends"), [(RAN, True), (RAN - 1, False)], ids=["ran on", "woke a moment before"])
def test_a_process_that_was_stopped_ends_itself_if_others_ran_on(watch, ended, capsys, local, ran, ends) -> None:
    watch[0].local = local
    watch[1].now += 100
    watch[0].look([seen(0, *RUNS), seen(1, *RUNS)], Counter({1: ran}))
    assert ended == [(os.getpid(), signal.SIGKILL)] * ends
    line = "scaffe: rank 0 is given up: its process did not run for 100 s while other ranks did\n"
    assert capsys.readouterr().err == line * ends


def test_what_other_ranks_of_the_node_hear_counts_until_the_next_look(watch, ended) -> None:
    """A rank that gets no datagrams itself may look before those that do."""
    watch[0].local = [0]
    watch[1].now += 100
    ranks = [seen(0, *RUNS), seen(1, *RUNS)]
    watch[0].look(ranks, Counter({1: RAN - 1}))
    watch[1].now += 1
    watch[0].look(ranks, Counter({1: 1}))
    assert ended == [(os.getpid(), signal.SIGKILL)]


def test_what_is_heard_later_is_of_the_time_after_the_pause(watch, ended) -> None:
    watch[0].local = [0]
    ranks = [seen(0, *RUNS), seen(1, *RUNS)]
    for pause, ran in ((100, 1), (1, 1), (1, 1), (1, RAN)):
        watch[1].now += pause
        watch[0].look(ranks, Counter({1: ran}))
    assert ended == []
