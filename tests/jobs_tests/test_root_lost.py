"""--mirror-every: the root is lost, and the others go on from its mirror as a run that is resumed there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nets
import pytest

from scaffe.errors import RanksLostError
from scaffe.monitor.record import BACKWARD, FORWARD, UPDATE

SECONDS = 60
END = 9  # iterations
HALF, BEFORE = "half", "before"  # a mirror under way: half of it is sent; the one before it is complete
pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own
DYING = """
import os, signal, sys
from scaffe import cli
from scaffe.monitor.record import RankRecord
from scaffe.parallel import mirror
from scaffe.parallel.world import launcher_rank
from scaffe.training.solver import Solver

rank, iteration, moment = next((one.split("-") for one in sys.argv[1].split() if int(one[0]) == launcher_rank()), "---")
at, feed, pieces, carry = RankRecord.at, mirror.Mirror.feed, mirror.pieces, Solver._carry
mirror.PIECE = 1 << 16
now = -1

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def dying(self, what, layer=-1):
    at(self, what, layer)
    if str(self._iteration) == iteration and str(what) == moment and layer <= 1:
        die()

def dying_in_recovery(self, state):
    if moment == "recovery":
        die()
    return carry(self, state)

def followed(self, iteration, *about):
    global now
    now = iteration
    feed(self, iteration, *about)

def dying_between(buffer):
    whole = pieces(buffer)
    for k, piece in enumerate(whole):
        if str(now) == iteration and k == {"before": 0, "half": len(whole) // 2}.get(moment):
            die()
        yield piece

RankRecord.at, Solver._carry = dying, dying_in_recovery
mirror.Mirror.feed, mirror.pieces = followed, dying_between
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return nets.write_images(tmp_path_factory.mktemp("root-lost") / "db")


@pytest.fixture
def train(tolerant_mpirun, tmp_path: Path, data: Path):
    """Train LeNet on `ranks` ranks, some of which are killed; return the process and its folder."""
    (tmp_path / "dying.py").write_text(DYING)
    net = nets.lenet(data, dropout=True, batch=12)

    def run(name: str, ranks: int, *flags: object, lost: str = "", **fields):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        fields = {"max_iter": END, "snapshot_after_train": True, "snapshot_prefix": "snap", **fields}
        solver = nets.write_solver(folder, net, **fields)
        launch = ("--with-ft", "ulfm") if lost else ()
        shrink = ("--on-rank-loss", "shrink") if lost else ()
        command = sys.executable, "-m", "mpi4py", tmp_path / "dying.py", lost, "train", "--solver", solver
        result = tolerant_mpirun(ranks, *launch, *command, *shrink, *flags, cwd=folder, timeout=SECONDS)
        return result, folder

    return run


def last(folder: Path) -> list[bytes]:
    return [(folder / f"snap_iter_{END}.{kind}").read_bytes() for kind in ("caffemodel", "solverstate")]


def resumed(train, ranks: int, left: int, at: int, *flags: str, **fields) -> list[bytes]:
    """Return the files of a run that stops on `ranks` ranks, unless at 0, and goes on with those that are `left`."""
    if at:
        result, _ = train("resumed", ranks, *flags, **{**fields, "max_iter": at})
        assert result.returncode == 0, result.stderr
        flags = *flags, "--snapshot", f"snap_iter_{at}.solverstate"
    result, folder = train("resumed", left, *flags, **fields)
    assert result.returncode == 0, result.stderr
    return last(folder)


@pytest.mark.parametrize(
    ("ranks", "lost", "every", "taken", "flags", "fields"),
    [
        (3, f"0-4-{HALF}", 2, 2, ("--workflow", "SC-OBR", "--drive", "helper"), {}),
        (3, f"0-6-{BEFORE}", 3, 3, ("--workflow", "SC-B"), {"type": "Adam", "momentum2": 0.999}),
        (3, f"0-1-{HALF}", 1, 0, ("--workflow", "SC-OB"), {}),  # that of iteration 0 is the buddy's own state
        (4, f"1-3-{FORWARD} 0-4-{BEFORE}", 2, 3, ("--workflow", "SC-OBR", "--drive", "hook"), {}),
        (4, f"2-5-{BACKWARD} 0-5-recovery", 1, (4, 5), ("--workflow", "SC-OBR"), {}),
    ],
)
def test_without_the_root_they_go_on_from_its_newest_whole_mirror(train, ranks, lost, every, taken, flags, fields):
    result, folder = train("shrunk", ranks, *flags, "--mirror-every", every, lost=lost, **fields)
    assert result.returncode == 0, result.stderr
    (found,) = re.findall(r"The root's mirror of iteration (\d+) is taken", result.stderr)
    assert int(found) in (taken if isinstance(taken, tuple) else (taken,))
    assert last(folder) == resumed(train, ranks, ranks - len(lost.split()), int(found), *flags, **fields)


def test_a_snapshot_that_is_newer_than_the_mirror_is_taken(train):
    result, folder = train("shrunk", 3, "--mirror-every", 3, lost=f"0-5-{BACKWARD}", snapshot=4)
    assert result.returncode == 0, result.stderr
    assert "Restored iteration 4 from snap_iter_4.solverstate" in result.stderr
    assert last(folder) == resumed(train, 3, 2, 4)


@pytest.mark.parametrize(
    ("ranks", "lost", "at", "flags"),
    [
        (3, f"0-0-{UPDATE}", 0, ("--workflow", "SC-OBR", "--drive", "helper", "--bucket-bytes", "0")),
        (4, f"1-3-{FORWARD} 0-3-{UPDATE}", 3, ("--workflow", "SC-OB")),
    ],
    ids=["of the job", "after a recovery"],
)
def test_in_an_iteration_that_all_ranks_begin_with_the_state_the_root_is_not_missed(train, ranks, lost, at, flags):
    result, folder = train("shrunk", ranks, *flags, lost=lost)
    assert result.returncode == 0, result.stderr
    assert f"they go on at iteration {at} after" in result.stderr
    assert last(folder) == resumed(train, ranks, 2, at, *flags)


def test_without_the_root_and_a_mirror_the_job_ends_with_one_line(train):
    result, _ = train("shrunk", 3, "--mirror-every", 1, lost=f"0-5-{BACKWARD} 1-5-{BACKWARD}")
    assert result.returncode == RanksLostError.exit_code, result.stderr
    told = "the root and its solver's history are lost; there is no snapshot of snap"
    assert result.stderr.count(told) == 1 and "Traceback" not in result.stderr
