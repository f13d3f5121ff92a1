"""Processes that are stopped where no watch over stalls is open: ranks in set-up, and spares that wait."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dying
import nets
import pytest
from patience import end_late

SECONDS = 0.8  # the stall time: a process that is stopped uses no CPU, however busy the machine is
BUSY = 2.4  # where ranks train, too: longer than a busy machine keeps one from running
END = 6  # iterations
pytestmark = [pytest.mark.mpi_skip, pytest.mark.watchdog(300)]  # they start an mpirun of their own, or three


class Trainings:
    """Starts trainings of a small net, each in a folder of its own."""

    def __init__(self, mpirun, folder: Path):
        self.mpirun, self.folder = mpirun, folder
        self.net = nets.softmax_regression(nets.write_images(folder / "db"), batch=12)

    def start(self, name: str, ranks: int, moments: str, *flags: object) -> subprocess.Popen[str]:
        """Return the running mpirun of a training with these moments (see dying.py)."""
        folder = self.folder / name
        folder.mkdir()
        nets.write_solver(folder, self.net, max_iter=END, snapshot_after_train=True, snapshot_prefix="snap")
        ft = ["--with-ft", "ulfm"] if "--on-rank-loss" in flags else []
        command = [sys.executable, "-m", "mpi4py", dying.__file__, moments, "train", "--solver", "solver.prototxt"]
        process = self.mpirun.start(ranks, *ft, *command, *map(str, flags), cwd=folder)
        end_late(process)
        return process

    def run(self, *given: object) -> tuple[int, str, bytes]:
        """Return the exit code of a training, its log and its last weights."""
        process = self.start(*given)
        log = process.communicate()[1]
        path = self.folder / str(given[0]) / f"snap_iter_{END}.caffemodel"
        return process.returncode, log, path.read_bytes() if path.exists() else b""


@pytest.fixture(scope="module")
def trainings(tolerant_mpirun, tmp_path_factory) -> Iterator[Trainings]:
    return Trainings(tolerant_mpirun, tmp_path_factory.mktemp("stopped"))


@pytest.fixture(scope="module")
def undisturbed(trainings) -> bytes:
    """The last weights of two ranks that nothing disturbs."""
    code, log, weights = trainings.run("undisturbed", 2, "")
    assert code == 0, log
    return weights


IN_SET_UP = "1 Parts._make_workflows 1 stop"
SHRINK = "--on-rank-loss", "shrink", "--stall", "shrink", "--stall-seconds", BUSY
GIVEN_UP = r"Stall: {} on \S+ is given up: its process has not run for \d+ s; process \d+ is killed$"


def test_a_rank_that_is_stopped_in_set_up_is_given_up_and_a_spare_takes_its_place(trainings, undisturbed):
    code, log, weights = trainings.run("set-up", 3, IN_SET_UP, *SHRINK, "--spares", 1, "--min-ranks", 2)
    assert code == 0, log
    assert len(re.findall(GIVEN_UP.format("rank 1"), log, re.M)) == log.count("is given up") == 1, log
    assert log.count("Lost rank 1 ") == log.count("Lost rank") == 1
    assert log.count("Ranks left: 1; they set up again") == log.count("Ranks left") - 1 == 1
    assert log.count("a spare, takes the place of rank 1; 0 spare(s) are left") == 1
    assert weights == undisturbed


def test_a_spare_that_is_stopped_while_it_waits_blocks_neither_a_recovery_nor_the_end(trainings, undisturbed):
    stopped = "2 Spares.wait 2 stop"  # it waits for its set-up's begin first
    lost = f"{stopped}; 1 backward 3"
    for name, moments, ended in (("recovery", lost, 1), ("end", stopped, 1)):
        code, log, weights = trainings.run(name, 4, moments, *SHRINK, "--spares", 2)
        assert code == 0, log
        assert len(re.findall(GIVEN_UP.format("spare 2"), log, re.M)) == log.count("is given up") == 1, log
        assert log.count("Lost a spare: process") == ended
        assert log.count("a spare, takes the place of rank 1; 0 spare(s) are left") == (moments == lost)
        assert weights == undisturbed


def test_with_stall_abort_a_rank_that_is_stopped_in_set_up_ends_the_job(trainings):
    code, log, _ = trainings.run("abort", 2, IN_SET_UP, "--stall", "abort", "--stall-seconds", SECONDS)
    assert code != 0
    assert len(re.findall(r"^scaffe: rank 1 on \S+ is stopped: its process \d+ has not run for \d+ s$", log, re.M)) == 1


def test_else_a_rank_that_is_stopped_in_set_up_is_named_and_goes_on(trainings, undisturbed):
    process = trainings.start("say", 2, IN_SET_UP, "--stall-seconds", SECONDS)
    log = ""
    while not (said := re.search(r"Stall: rank 1 on \S+ is stopped: its process (\d+) has not run for \d+ s", log)):
        line = process.stderr.readline()
        assert line, log
        log += line
    os.kill(int(said[1]), signal.SIGCONT)
    log += process.communicate()[1]
    assert process.returncode == 0, log
    assert log.count("is stopped") == 1
    assert (trainings.folder / "say" / f"snap_iter_{END}.caffemodel").read_bytes() == undisturbed
