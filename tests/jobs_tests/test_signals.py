"""Signals, sent for real: to the one process, to mpirun, and to one rank of several."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import nets
import pytest
from conftest import environment

ENDLESS = 10**6
EARLY = "Optimization stopped early."
REQUEUE = 75

pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own


def write_solver(folder: Path, last: int = ENDLESS, after_train: bool = True, every: int = 0) -> None:
    folder.joinpath("solver.prototxt").write_text(
        f'net: "net.prototxt" base_lr: 0.001 lr_policy: "fixed" max_iter: {last} random_seed: 1 display: 1 '
        f'snapshot_prefix: "snap" snapshot_after_train: {str(after_train).lower()} snapshot: {every}\n'
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a solver that trains until it is told to stop."""
    nets.write_images(tmp_path / "db", 16, (1, 4, 4))
    (tmp_path / "net.prototxt").write_text(nets.softmax_regression("db"))
    write_solver(tmp_path)
    return tmp_path


class Training:
    """A running `scaffe train`, whose log is read as it comes."""

    def __init__(self, process: subprocess.Popen[str]):
        self.process = process
        self.lines: list[str] = []
        self.pids: dict[int, int] = {}

    def iterate(self, least: int = 2) -> int:
        """Read until the log tells of an iteration not before `least`; return it."""
        while (iteration := int(self.read_until(r"Iteration (\d+)")[1])) < least:
            pass
        return iteration

    def read_until(self, pattern: str) -> re.Match[str]:
        for line in self.process.stderr:  # type: ignore[union-attr]
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found
        pytest.fail(f"the log ended without '{pattern}':\n{''.join(self.lines)}", pytrace=False)

    def end(self) -> int:
        """Read the rest of the log; return the exit code."""
        self.lines += self.process.communicate(timeout=900)[1].splitlines(keepends=True)
        return self.process.returncode

    @property
    def log(self) -> str:
        return "".join(self.lines)

    @property
    def snapshots(self) -> list[int]:
        """The iterations of which the log tells snapshots."""
        return [int(n) for n in re.findall(r"solver state to .*_iter_(\d+)\.solverstate", self.log)]


@pytest.fixture
def alone(folder: Path) -> Iterator:
    """Start `scaffe train` in one process, without mpirun."""
    started: list[subprocess.Popen[str]] = []

    def start(*flags: str, program: Sequence[str] = ("-m", "scaffe")) -> Training:
        command = [sys.executable, *program, "train", "--solver", "solver.prototxt", *flags]
        process = subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True)
        started.append(process)
        return Training(process)

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def ranks(mpirun, folder: Path) -> Iterator:
    """Start `scaffe train` on two ranks whose process ids are known."""
    started: list[subprocess.Popen[str]] = []

    def start(*flags: str, program: Sequence[str] = ("-m", "scaffe")) -> Training:
        told = 'echo "${OMPI_COMM_WORLD_RANK-$PMI_RANK} $$"; exec "$@"'  # exec keeps the process id
        command = ["sh", "-c", told, "sh", sys.executable, *program, "train", "--solver", "solver.prototxt", *flags]
        process = mpirun.start(2, *command, cwd=folder)
        started.append(process)
        training = Training(process)
        training.pids = dict(tuple(map(int, process.stdout.readline().split())) for _ in range(2))
        return training

    yield start
    for process in started:
        process.terminate()  # mpirun ends its ranks
        process.communicate()


@pytest.mark.parametrize("after_train", [True, False])
def test_sigint_stops_after_the_iteration(alone, folder: Path, after_train: bool) -> None:
    write_solver(folder, after_train=after_train)
    training = alone()
    training.iterate()
    training.process.send_signal(signal.SIGINT)
    assert training.end() == 0
    assert EARLY in training.log
    last = max(int(n) for n in re.findall(r"Iteration (\d+), lr", training.log))
    assert training.snapshots == [last + 1] * after_train
    assert len(list(folder.glob("snap*"))) == 2 * after_train


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM], ids=lambda number: number.name)
def test_what_batch_systems_send_snapshots_and_asks_to_be_requeued(alone, folder: Path, number: int) -> None:
    write_solver(folder, after_train=False)
    training = alone()
    training.iterate()
    training.process.send_signal(number)
    assert training.end() == REQUEUE
    assert EARLY in training.log and len(training.snapshots) == 1
    assert len(list(folder.glob("snap*"))) == 2


def test_sighup_snapshots_and_training_goes_on(alone, folder: Path) -> None:
    training = alone()
    training.iterate()
    training.process.send_signal(signal.SIGHUP)
    snapshot = int(training.read_until(r"solver state to .*_iter_(\d+)\.solverstate")[1])
    assert training.iterate(snapshot + 2) >= snapshot + 2
    training.process.send_signal(signal.SIGINT)
    assert training.end() == 0
    assert training.snapshots[0] == snapshot and len(training.snapshots) == 2


def test_the_effects_can_be_exchanged(alone, folder: Path) -> None:
    training = alone("-sigint_effect", "snapshot", "--sighup-effect=stop")
    training.iterate()
    training.process.send_signal(signal.SIGINT)
    snapshot = int(training.read_until(r"solver state to .*_iter_(\d+)\.solverstate")[1])
    training.iterate(snapshot + 2)
    training.process.send_signal(signal.SIGHUP)
    assert training.end() == 0
    assert EARLY in training.log


def test_an_effect_of_none_changes_nothing(alone, folder: Path) -> None:
    training = alone("-sigint_effect", "none")
    training.iterate()
    training.process.send_signal(signal.SIGINT)
    training.process.send_signal(signal.SIGHUP)  # once this one is answered the other has been seen too
    snapshot = int(training.read_until(r"solver state to .*_iter_(\d+)\.solverstate")[1])
    training.iterate(snapshot + 2)
    training.process.send_signal(signal.SIGTERM)
    assert training.end() == REQUEUE
    assert len(training.snapshots) == 2


SENDS = """
import os, sys
module, number = sys.argv[1], int(sys.argv[2])
del sys.argv[1:3]

class Sends:
    def find_spec(self, name, *given):
        if name == module:
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Sends())
from scaffe.__main__ import main
sys.exit(main())
"""
STOPS = "--sighup-effect=stop"


@pytest.mark.parametrize("module", ["scaffe.cli", "mpi4py.MPI"])  # the command begins, and MPI does
@pytest.mark.parametrize(
    ("number", "flags", "code"),
    [
        (signal.SIGUSR1, [], REQUEUE),
        (signal.SIGTERM, [], REQUEUE),
        (signal.SIGINT, [], 0),
        (signal.SIGHUP, [STOPS], 0),  # which Open MPI would take
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_signal_while_training_starts_is_remembered(alone, number: int, flags: list[str], code: int, module) -> None:
    training = alone(*flags, program=["-c", SENDS, module, str(int(number))])
    assert training.end() == code
    assert EARLY in training.log and training.snapshots == [1]


def test_a_signal_without_effect_does_not_end_a_training_that_starts(alone, folder: Path) -> None:
    write_solver(folder, last=2)
    program = ["-c", SENDS, "mpi4py.MPI", str(int(signal.SIGINT))]
    training = alone("-sigint_effect", "none", program=program)
    assert training.end() == 0
    assert "Optimization Done." in training.log


def test_a_signal_ends_other_commands_as_it_ends_any_program() -> None:
    run = subprocess.run([sys.executable, "-c", SENDS, "scaffe.cli", "15", "test"], env=environment())
    assert run.returncode == -signal.SIGTERM


def test_mpirun_passes_usr1_on_and_all_ranks_ask_to_be_requeued(ranks, folder: Path) -> None:
    training = ranks()
    training.iterate()
    training.process.send_signal(signal.SIGUSR1)
    assert training.end() == REQUEUE
    assert len(training.snapshots) == 1 and training.log.count(EARLY) == 1


def test_a_requeued_run_goes_on_where_it_stopped_and_finishes(ranks, folder: Path) -> None:
    first = ranks()
    first.iterate()
    os.kill(first.pids[0], signal.SIGTERM)
    assert first.end() == REQUEUE
    [stopped] = first.snapshots
    write_solver(folder, last=stopped + 3)
    second = ranks("--snapshot", "auto")
    assert second.end() == 0
    assert f"Restored iteration {stopped} from snap_iter_{stopped}.solverstate" in second.log
    assert f"Iteration {stopped}, " not in first.log and f"Iteration {stopped}, " in second.log
    assert "Optimization Done." in second.log and second.snapshots == [stopped + 3]


@pytest.mark.parametrize(("rank", "number", "code"), [(1, signal.SIGINT, 0), (1, signal.SIGUSR1, REQUEUE)])
def test_a_signal_to_one_rank_stops_all_after_the_same_iteration(ranks, folder: Path, rank, number, code) -> None:
    training = ranks()
    training.iterate()
    os.kill(training.pids[rank], number)
    assert training.end() == code
    assert training.log.count(EARLY) == 1 and len(training.snapshots) == 1


def test_a_sighup_to_one_rank_snapshots_and_all_go_on(ranks, folder: Path) -> None:
    training = ranks()
    training.iterate()
    os.kill(training.pids[1], signal.SIGHUP)
    snapshot = int(training.read_until(r"solver state to .*_iter_(\d+)\.solverstate")[1])
    training.iterate(snapshot + 2)
    os.kill(training.pids[0], signal.SIGINT)
    assert training.end() == 0


HANGS = """
import sys, threading
import readers.files as files

class System:
    def __getattr__(self, name):
        return getattr(os, name)

    def fsync(self, descriptor):
        print("The snapshot is being written", file=sys.stderr, flush=True)
        threading.Event().wait()

os, files.os = files.os, System()
from scaffe.__main__ import main
sys.exit(main())
"""


def test_what_mpirun_leaves_when_it_is_terminated_the_next_job_removes_at_once(ranks, alone, folder: Path) -> None:
    """It ends its ranks within a second of SIGTERM, which is too short for a snapshot here."""
    write_solver(folder, every=2)
    training = ranks(program=["-c", HANGS])
    training.read_until("is being written")
    training.process.send_signal(signal.SIGTERM)
    assert training.end() not in (0, REQUEUE)
    assert sorted(path.suffix for path in folder.glob("snap*")) == [".lock", ".tmp"]
    write_solver(folder, last=2)
    following = alone("--snapshot", "auto")
    assert following.end() == 0
    assert f"taken over from process {training.pids[0]}" in following.log and "waiting for up to" not in following.log
    assert sorted(path.suffix for path in folder.glob("snap*")) == [".caffemodel", ".solverstate"]
