"""--on-rank-loss shrink: the ranks that are left go on, and end with what a resumed run of so many ranks computes."""

from __future__ import annotations

import sys
from pathlib import Path

import nets
import pytest

from scaffe.errors import RanksLostError
from scaffe.monitor.record import BACKWARD, FORWARD, LOSS, UPDATE

SECONDS = 60
END, WHEN = 9, 5  # iterations, and the one in which ranks are killed
pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own
DYING = """
import os, signal, sys
from scaffe import cli
from scaffe.errors import RanksLostError
from scaffe.monitor.record import RankRecord
from scaffe.parallel.world import launcher_rank
from scaffe.training.solver import Solver

lost, when, operation = sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3])
at = RankRecord.at

def dying(self, what, layer=-1):
    at(self, what, layer)
    if str(launcher_rank()) in lost and self._iteration == when and what == operation and layer <= 1:
        os.kill(os.getpid(), signal.SIGKILL)

carry = Solver._carry

def dying_again(self, state):
    if str(launcher_rank()) == os.environ.get("LOST_IN_RECOVERY"):
        os.kill(os.getpid(), signal.SIGKILL)
    return carry(self, state)

step = Solver.step

def decaying(self, iterations):
    def decay():
        for blobs in self.net.params.values():
            blobs[0].data[...] *= 0.75

    if "DECAY" in os.environ:
        self.add_callback(decay, lambda: None)
    step(self, iterations)

RankRecord.at, Solver._carry, Solver.step = dying, dying_again, decaying
sys.exit(cli.main(sys.argv[4:]))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return nets.write_images(tmp_path_factory.mktemp("lost") / "db")


@pytest.fixture
def run(mpirun, tmp_path: Path, data: Path):
    """Train LeNet on `ranks` ranks, some of which are killed; return the process and the last weights and state."""
    if "Open MPI" not in mpirun(1, "--version").stdout:
        pytest.skip("only Open MPI goes on without a rank")
    (tmp_path / "dying.py").write_text(DYING)
    net = nets.lenet(data, dropout=True, batch=12)

    def train(name: str, ranks: int, *flags: str, lost: str = "", where: int = FORWARD, end: int = END, **fields):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        solver = nets.write_solver(
            folder, net, max_iter=end, snapshot_after_train=True, snapshot_prefix="snap", **fields
        )
        dying = tmp_path / "dying.py", lost or "-", WHEN, where
        launch = ("--with-ft", "ulfm") if lost else ()
        shrink = ("--on-rank-loss", "shrink") if lost else ()
        command = sys.executable, "-m", "mpi4py", *dying, "train", "--solver", solver
        result = mpirun(ranks, *launch, *command, *shrink, *flags, cwd=folder, timeout=SECONDS)
        files = [folder / f"snap_iter_{end}.{kind}" for kind in ("caffemodel", "solverstate")]
        return result, [file.read_bytes() if file.exists() else b"" for file in files]

    return train


def resumed(run, ranks: int, left: int, at: int, *flags: str, **fields):
    """Return the files of a run that stops on `ranks` ranks and goes on with those that are `left`."""
    result, _ = run("resumed", ranks, *flags, end=at, **fields)
    assert result.returncode == 0, result.stderr
    state = result.stderr.rpartition("solver state to binary proto file ")[2].split()[0]
    result, files = run("resumed", left, *flags, "--snapshot", state, **fields)
    assert result.returncode == 0, result.stderr
    return files


@pytest.mark.parametrize(
    ("ranks", "lost", "where", "flags"),
    [
        (3, "2", BACKWARD, ("--workflow", "SC-OBR", "--bucket-bytes", "0", "--reduce", "chain")),
        (4, "1,3", UPDATE, ("--workflow", "SC-OBR", "--drive", "helper")),
        (3, "0", BACKWARD, ("--workflow", "SC-OBR", "--sync", "allreduce", "--reduce", "ring")),
        (3, "1", LOSS, ("--workflow", "SC-B", "--min-ranks", "2")),
    ],
)
def test_the_ranks_that_are_left_go_on_as_a_resumed_run_does(run, ranks, lost, where, flags):
    result, files = run("shrunk", ranks, *flags, lost=lost, where=where)
    assert result.returncode == 0, result.stderr
    left = ranks - len(lost.split(","))
    assert f"{left} rank(s) are left; they go on at iteration {WHEN} after" in result.stderr
    assert files == resumed(run, ranks, left, WHEN, *flags)


def test_a_rank_may_be_lost_while_the_others_recover(run, monkeypatch):
    monkeypatch.setenv("LOST_IN_RECOVERY", "2")
    result, files = run("shrunk", 4, lost="1")
    assert result.returncode == 0, result.stderr
    monkeypatch.delenv("LOST_IN_RECOVERY")
    assert files == resumed(run, 4, 2, WHEN)


def test_what_a_callback_has_written_into_parameters_is_put_back(run, monkeypatch):
    monkeypatch.setenv("DECAY", "1")
    result, files = run("shrunk", 3, lost="1")
    assert result.returncode == 0, result.stderr
    assert files == resumed(run, 3, 2, WHEN)


def test_without_the_root_they_go_back_to_the_newest_snapshot(run):
    result, files = run("shrunk", 3, lost="0", where=UPDATE, snapshot=3)
    assert result.returncode == 0, result.stderr
    assert "Restored iteration 3 from snap_iter_3.solverstate" in result.stderr
    assert files == resumed(run, 3, 2, 3)


@pytest.mark.parametrize(
    ("lost", "flags", "told"),
    [
        ("1", ("--min-ranks", "3"), "2 rank(s) are left, fewer than --min-ranks 3"),
        ("0", (), "the root and its solver's history are lost; there is no snapshot of snap"),
    ],
)
def test_ranks_that_cannot_go_on_end_with_an_exit_code_of_their_own(run, lost, flags, told):
    result, files = run("shrunk", 3, *flags, lost=lost)
    assert result.returncode == RanksLostError.exit_code, result.stderr
    assert result.stderr.count(told) == 1 and "Traceback" not in result.stderr


def test_a_job_that_ends_with_any_of_its_ranks_is_refused(run):
    result, _ = run("refused", 2, "--on-rank-loss", "shrink")
    assert result.returncode == 2
    assert result.stderr.count("--on-rank-loss shrink: this job ends with any of its ranks") == 1
