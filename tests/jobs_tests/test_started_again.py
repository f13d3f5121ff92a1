"""jobs/mpirun.sh --retries: a training whose process is lost is started again, and ends with the same bits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nets
import pytest
from conftest import ROOT, environment

PROGRAM = """
import os, signal, sys, time
from scaffe.cli import main
from scaffe.training.checkpoints import Checkpoints
from scaffe.training.solver import Solver

fault, *words = sys.argv[1:]
act = Solver._handle
def fail():
    raise RuntimeError("a defect")
def failing(self):
    act(self)
    if self.iter == 3 and self.world.rank == 1 and not os.path.exists("hit"):
        while not os.path.exists("snap_iter_2.solverstate"):  # written while training goes on, whole once it is there
            time.sleep(0.01)
        open("hit", "w").close()
        {"kill": lambda: os.kill(os.getpid(), signal.SIGKILL), "exit": lambda: os._exit(1), "raise": fail}[fault]()
Solver._handle = failing
keep = Checkpoints.keep_prefix
def killed(self):
    if fault == "all" and not os.path.exists("hit"):
        self.job.world.allsum(1)
        open("hit", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    keep(self)
Checkpoints.keep_prefix = killed
sys.exit(main(words))
"""

pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own


@pytest.fixture
def train(tmp_path: Path):
    """Train with retries; rank 1 fails once, after the third iteration."""
    nets.write_images(tmp_path / "db", 20, (1, 4, 4))
    nets.write_solver(
        tmp_path, nets.softmax_regression("db"), max_iter=6, snapshot=2, snapshot_prefix="snap", random_seed=3
    )
    (tmp_path / "program.py").write_text(PROGRAM)

    def run(fault: str, *launch: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "program.py", fault, "train", "--solver", "solver.prototxt", "--snapshot", "auto"]
        command = [ROOT / "jobs/mpirun.sh", "--retries", "2", *launch, "-n", "2", *words]
        return subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=900)

    return run


def test_a_lost_process_costs_no_bit(train, tmp_path: Path) -> None:
    run = train("kill")
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("scaffe retry: ") == 1
    assert "): retry 1 of 2, from snap_iter_2.solverstate" in run.stderr
    assert "Restored iteration 2 from snap_iter_2.solverstate" in run.stderr
    files = [tmp_path / f"snap_iter_6.{kind}" for kind in ("caffemodel", "solverstate")]
    retried = [path.read_bytes() for path in files]
    for path in tmp_path.glob("snap_iter_*"):
        path.unlink()
    assert train("kill").stderr.count("scaffe retry: ") == 0  # the file hit is there: undisturbed
    assert [path.read_bytes() for path in files] == retried


def test_an_exception_ends_the_job(train) -> None:
    run = train("raise")
    assert run.returncode not in (0, 2)
    assert "RuntimeError: a defect" in run.stderr and "scaffe retry: " not in run.stderr


def test_ranks_that_are_all_killed_before_the_first_iteration_are_started_again(
    tolerant_mpirun, train, tmp_path
) -> None:
    """Open MPI's mpirun --with-ft ulfm then exits with 0, and no lock tells of the training."""
    run = train("all", "--ft")
    assert run.returncode == 0 and (tmp_path / "hit").exists()
    assert "scaffe retry: a process was lost (exit status 0): retry 1 of 2, from the start" in run.stderr
    assert "Optimization Done." in run.stderr and (tmp_path / "snap_iter_6.solverstate").exists()
