"""What fails while messages are under way ends the job, with its reason and within seconds."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import nets
import pytest

from scaffe.parallel.drive import DRIVES
from scaffe.training.signals import REQUEUE_EXIT_CODE

SECONDS = 30
pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own
BREAKING = """
import os, signal
from mpi4py import MPI

class Breaking(Same):
    calls = 0

    def backward(self, top, propagate_down, bottom):
        super().backward(top, propagate_down, bottom)
        self.calls += 1
        if self.calls == 3 and MPI.COMM_WORLD.rank == 1:
            {act}
"""
LAYER = """
layer {
  name: "breaking" type: "Python" bottom: "ip1" top: "broken" python_param { module: "breaking" layer: "Breaking" }
}
layer { name: "ip2" type: "InnerProduct" bottom: "broken" """
NET = nets.tower("db").replace('layer {\n  name: "ip2" type: "InnerProduct" bottom: "ip1" ', LAYER.strip() + " ")


@pytest.fixture
def train(mpirun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Train a net on two ranks whose backward pass does `act` on rank 1 in iteration 2."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    nets.write_images(tmp_path / "db", 24)
    assert "Breaking" in NET
    nets.write_solver(tmp_path, NET, snapshot_prefix="snap")

    def run(act: str, *flags: str):
        (tmp_path / "breaking.py").write_text((nets.SAME + BREAKING).format(act=act))
        command = [sys.executable, "-m", "scaffe", "train", "--solver", "solver.prototxt", "--allow-python-layers"]
        return mpirun(2, *command, "--workflow", "SC-OBR", "--reduce", "chain", *flags, cwd=tmp_path, timeout=SECONDS)

    return run


@pytest.mark.parametrize("drive", DRIVES)
def test_a_layer_that_throws_ends_the_job_with_its_reason(train, tmp_path, drive):
    run = train('raise ValueError("no more gradients")', "--drive", drive)
    assert run.returncode in (1, signal.SIGKILL)
    assert "no more gradients" in run.stderr and "rank 1" in run.stderr
    assert not list(tmp_path.glob("snap*"))


@pytest.mark.parametrize("drive", DRIVES)
def test_a_rank_that_dies_while_reduces_are_under_way_ends_the_job(train, tmp_path, drive):
    run = train("os.kill(os.getpid(), signal.SIGKILL)", "--drive", drive, "--bucket-bytes", "0")
    assert run.returncode != 0
    assert "signal 9" in run.stderr or "KILLED BY SIGNAL: 9" in run.stdout
    assert not list(tmp_path.glob("snap*"))


@pytest.mark.parametrize(("number", "drive"), [("SIGTERM", "helper"), ("SIGUSR1", "helper"), ("SIGTERM", "hook")])
def test_a_signal_in_mid_iteration_stops_after_a_whole_one(train, tmp_path, number, drive):
    run = train(f"os.kill(os.getpid(), signal.{number})", "--drive", drive, "--bucket-bytes", "0")
    assert run.returncode == REQUEUE_EXIT_CODE, run.stderr
    assert run.stderr.count("Optimization stopped early.") == 1
    weights, state = stopped = [tmp_path / f"snap_iter_4.{kind}" for kind in ("caffemodel", "solverstate")]
    assert sorted(tmp_path.glob("snap*")) == stopped
    given = weights.read_bytes(), state.read_bytes()
    for file in stopped:  # a run beside them would be another one of the prefix
        file.unlink()
    nets.write_solver(tmp_path, NET, snapshot_prefix="snap", max_iter=4, snapshot_after_train=True)
    assert train("pass", "--workflow", "SC-B").returncode == 0
    assert (weights.read_bytes(), state.read_bytes()) == given
