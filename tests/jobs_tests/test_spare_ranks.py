"""--spares K: spares take the places of lost ranks, and the run ends with what as many ranks compute without a loss."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nets
import pytest

from scaffe.monitor.record import BACKWARD, FORWARD, UPDATE

SECONDS = 60
END = 9
pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own
# Arguments: deaths as "rank-iteration-operation", ranks of the launch that die as idle spares, those that die when they
# take a place, and the command's.
DYING = """
import os, signal, sys
from scaffe import cli
from scaffe.monitor.record import RankRecord
from scaffe.parallel.spares import Spares
from scaffe.parallel.world import launcher_rank
from scaffe.training.solver import Solver

deaths, idle, joining = (one.split(",") for one in sys.argv[1:4])
print(f"process {os.getpid()}", file=sys.stderr)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

at, wait, carry = RankRecord.at, Spares.wait, Solver._carry

def dying(self, what, layer=-1):
    at(self, what, layer)
    if f"{launcher_rank()}-{self._iteration}-{what}" in deaths and layer <= 1:
        die()

def dying_idle(self, until=None):
    if until is not None:
        return wait(self, until)
    if str(launcher_rank()) in idle:
        die()
    wait(self)

def dying_as_it_joins(self, state):
    if str(launcher_rank()) in joining:
        die()
    return carry(self, state)

RankRecord.at, Spares.wait, Solver._carry = dying, dying_idle, dying_as_it_joins
sys.exit(cli.main(sys.argv[4:]))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return nets.write_images(tmp_path_factory.mktemp("spares") / "db")


@pytest.fixture
def run(tolerant_mpirun, tmp_path: Path, data: Path):
    """Train LeNet on `ranks` ranks and `spares`, some of which die; return the process and the last snapshot."""
    (tmp_path / "dying.py").write_text(DYING)
    net = nets.lenet(data, dropout=True, batch=12)

    def train(name: str, ranks: int, *flags: str, spares=0, deaths="", idle="", joining="", end: int = END):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        solver = nets.write_solver(
            folder, net, max_iter=end, snapshot_after_train=True, snapshot_prefix="snap", random_seed=7
        )
        dying = sys.executable, "-m", "mpi4py", tmp_path / "dying.py", deaths or "-", idle or "-", joining or "-"
        launch, extra = (
            (("--with-ft", "ulfm"), ("--on-rank-loss", "shrink", "--spares", spares)) if spares else ((), ())
        )
        command = *launch, *dying, "train", "--solver", solver, *extra, *flags
        result = tolerant_mpirun(ranks + spares, *command, cwd=folder, timeout=SECONDS)
        files = [folder / f"snap_iter_{end}.{kind}" for kind in ("caffemodel", "solverstate")]
        return result, [file.read_bytes() if file.exists() else b"" for file in files]

    return train


def left(result) -> list[int]:
    """Return the processes of a run that have not ended."""
    pids = [int(line.split()[1]) for line in result.stderr.splitlines() if line.startswith("process ")]
    assert pids
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}/cmdline") and b"dying.py" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


@pytest.mark.parametrize(
    ("death", "rank", "flags"),
    [
        (f"1-5-{BACKWARD}", 1, ("--workflow", "SC-OBR", "--bucket-bytes", "0", "--reduce", "chain")),
        (f"0-5-{UPDATE}", 0, ("--workflow", "SC-OBR", "--sync", "allreduce", "--reduce", "ring")),
    ],
)
def test_with_a_spare_the_run_computes_what_it_computes_without_a_loss(run, death, rank, flags):
    result, files = run("spared", 3, *flags, spares=1, deaths=death)
    assert result.returncode == 0, result.stderr
    assert f"a spare, takes the place of rank {rank}; 0 spare(s) are left" in result.stderr
    whole, expected = run("whole", 3, *flags)
    assert whole.returncode == 0, whole.stderr
    assert files == expected
    assert left(result) == []


def test_without_another_spare_the_ranks_go_on_as_fewer(run):
    in_a_row, files = run("in_a_row", 3, spares=1, deaths=f"1-4-{FORWARD},2-6-{BACKWARD}")
    joining, others = run("joining", 3, spares=1, deaths=f"1-6-{FORWARD}", joining="3")
    expected = resumed(run, 3, 2, 6)
    for result, found in ((in_a_row, files), (joining, others)):
        assert result.returncode == 0, result.stderr
        assert "Ranks left: 2; they go on at iteration 6" in result.stderr
        assert found == expected


def resumed(run, ranks: int, less: int, at: int):
    """Return the files of a run that stops on `ranks` ranks and goes on with `less`."""
    result, _ = run("resumed", ranks, end=at)
    assert result.returncode == 0, result.stderr
    result, files = run("resumed", less, "--snapshot", f"snap_iter_{at}.solverstate")
    assert result.returncode == 0, result.stderr
    return files


def test_spares_that_are_not_needed_or_lost_leave_no_trace(run):
    result, files = run("spared", 2, spares=2, idle="2")
    assert result.returncode == 0, result.stderr
    assert result.stdout == "" and result.stderr.count("takes the place") == 0
    assert result.stderr.count("Lost a spare: process") == 1
    assert files == run("whole", 2)[1]
    assert left(result) == []


def test_spares_end_with_the_exit_code_of_an_error(run):
    result, _ = run("wrong", 2, "--snapshot", "none.solverstate", spares=1)
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("none.solverstate") == 1 and "MPI_ABORT" not in result.stderr
    assert left(result) == []
