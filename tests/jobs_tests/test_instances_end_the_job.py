"""An error in an instance of one of two ranks ends the job, told once, with both numbers; signals stop it whole."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from test_failing import SECONDS, aborted, put, reports, trainable

from readers import encode
from scaffe.training.signals import REQUEUE_EXIT_CODE

pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own
WAY = ["--workflow", "SC-OBR", "--reduce", "chain", "--instances", "2", "--oversubscribe", "--gather", "slices"]
BREAKING = """
import os, signal, sys, threading
from mpi4py import MPI
from scaffe.cli import main
from scaffe.net.net import Net
from scaffe.parallel.instances import gradient_sums
from scaffe.solvers.rule import Rule
from scaffe.training.nets import NetBuilder

PHASES = {
    "build": (NetBuilder, "_train_net"), "forward": (Net, "forward_layer"), "backward": (Net, "backward_layer"),
    "gather": (gradient_sums, "add"), "update": (Rule, "update"),
}
phase, rank, thread, act = sys.argv[1:5]
owner, name = PHASES[phase]
work, calls = getattr(owner, name), []

def breaking(*given):
    if MPI.COMM_WORLD.rank == int(rank) and threading.current_thread().name == thread:
        calls.append(1)
        if len(calls) == (1 if phase == "build" else 3):
            exec(act)
    return work(*given)

setattr(owner, name, breaking)
sys.exit(main(sys.argv[5:]))
"""
DEFECT = 'raise RuntimeError("a defect")'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return trainable(tmp_path)


@pytest.fixture
def train(mpirun, folder: Path):
    """Train on two ranks of two instances; in a phase a thread of a rank does `act`."""
    (folder / "program.py").write_text(BREAKING)

    def run(phase: str, rank: int, thread: str, act: str, *flags: str):
        command = [sys.executable, "program.py", phase, rank, thread, act]
        train = "train", "--solver", "solver.prototxt", *WAY, *flags
        return mpirun(2, *command, *train, cwd=folder, timeout=SECONDS)

    return run


PLACES = [
    ("build", 1, "instance 1"),
    ("backward", 1, "instance 0"),
    ("gather", 1, "instance 1"),
    ("update", 0, "MainThread"),  # of several ranks, the thread that calls MPI updates
]


@pytest.mark.parametrize(("phase", "rank", "thread"), PLACES)
def test_an_error_in_an_instance_ends_all_ranks_with_its_traceback(train, phase, rank, thread) -> None:
    run = train(phase, rank, thread, DEFECT)
    assert aborted(run, 1)
    where = f"rank {rank}: " + (f"{thread} of 2: " if thread != "MainThread" else "")
    assert reports(run.stderr) == [f"scaffe: {where}Traceback (most recent call last):"]
    assert run.stderr.count("RuntimeError: a defect") == 1


def test_a_bad_record_ends_all_ranks_in_one_line_with_the_instance_that_read_it(train, folder) -> None:
    put(folder, 7, encode(np.zeros((1, 5, 5), np.uint8), 0))  # of 8 records a batch, instance 1 of rank 1 reads 6 and 7
    run = train("forward", -1, "", "")
    assert aborted(run, 2)
    [report] = reports(run.stderr)
    assert report.startswith("scaffe: rank 1: instance 1 of 2: db: record '00000007' is 1 x 5 x 5, but")
    assert "Traceback" not in run.stderr


def test_a_signal_in_mid_iteration_stops_after_a_whole_one(train, folder) -> None:
    run = train("backward", 1, "instance 1", "os.kill(os.getpid(), signal.SIGTERM)", "--bucket-bytes", "0")
    assert run.returncode == REQUEUE_EXIT_CODE, run.stderr
    assert run.stderr.count("Optimization stopped early.") == 1
    [weights] = folder.glob("snap*.caffemodel")
    stopped, last = weights.read_bytes(), int(weights.stem.split("_")[-1])
    solver = folder / "solver.prototxt"
    solver.write_text(solver.read_text().replace("max_iter: 4", f"max_iter: {last}"))
    assert last < 4 and train("backward", -1, "", "", "--workflow", "SC-B").returncode == 0
    assert weights.read_bytes() == stopped


def test_a_sighup_in_mid_iteration_snapshots_and_training_goes_on(train, folder) -> None:
    run = train("backward", 1, "instance 1", "os.kill(os.getpid(), signal.SIGHUP)", "--bucket-bytes", "0")
    assert run.returncode == 0 and "Optimization Done." in run.stderr
    assert len(list(folder.glob("snap*.solverstate"))) == 2
