"""A rank that is stopped: the others say that it is missing, wait for it, and go on as if nothing had been."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import nets
import pytest
from patience import end_late

import scaffe

SECONDS = "0.8"
ITERATION = 2  # of max_iter
WAYS = {
    "SC-B": ["--workflow", "SC-B"],
    "SC-OBR, helper": ["--workflow", "SC-OBR", "--reduce", "chain", "--drive", "helper"],
    "SC-OBR, hook": ["--workflow", "SC-OBR", "--reduce", "chain", "--drive", "hook"],
}
STOPPING = """
import os, signal, threading, time
from mpi4py import MPI
from scaffe.files.process_state import state_of
from scaffe.parallel.watch.heartbeats import Heartbeats
from scaffe.parallel.world import opened_world

look = Heartbeats.look_at_stall
if {rank} >= 0:
    Heartbeats.look_at_stall = lambda self: None  # on a busy machine there may be stalls before the one that is meant

class Stopping(Same):
    calls = 0

    def forward(self, bottom, top):
        super().forward(bottom, top)
        self.stop("forward")

    def backward(self, top, propagate_down, bottom):
        super().backward(top, propagate_down, bottom)
        self.stop("backward")

    def stop(self, where):
        if where != "{where}":
            return
        self.calls += 1
        if self.calls != {iteration} + 1 or {rank} < 0:
            return
        if MPI.COMM_WORLD.rank == {rank}:
            print(os.getpid(), flush=True)
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # all threads, but this one here and now
        elif MPI.COMM_WORLD.rank == ({rank} == 0):  # the lowest that waits: it reports
            while not state_of(opened_world().pids[{rank}]).is_stopped:
                time.sleep(0.01)
            Heartbeats.look_at_stall = look
"""
LAYER = """
layer {
  name: "stopping" type: "Python" bottom: "ip1" top: "stopped" python_param { module: "stopping" layer: "Stopping" }
}
layer { name: "ip2" type: "InnerProduct" bottom: "stopped" """
TRAIN = ["train", "--solver", "solver.prototxt"]
TEST = ["test", "--model", "net.prototxt", "--weights", "w.caffemodel", "--iterations", "8"]
NOBODY = -1
pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own


class Job:
    """A running `scaffe train`, one rank of which stops itself in mid-iteration."""

    def __init__(self, process: subprocess.Popen[str]):
        self.process = process
        self.read: list[str] = []

    def stopped(self) -> int:
        """Return the process id of the rank that has stopped."""
        return int(self.process.stdout.readline())  # type: ignore[union-attr]

    def read_until(self, pattern: str) -> None:
        for line in self.process.stderr:  # type: ignore[union-attr]
            self.read.append(line)
            if re.search(pattern, line):
                return
        pytest.fail(f"the log ended without '{pattern}':\n{''.join(self.read)}", pytrace=False)

    def end(self) -> int:
        """Read the rest of the log; return the exit code."""
        self.read.append(self.process.communicate()[1])
        return self.process.returncode

    @property
    def log(self) -> str:
        return "".join(self.read)


@pytest.fixture
def train(mpirun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Job]]:
    """Start `scaffe train`: six iterations, in the backward pass of one a rank stops, and a snapshot."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    nets.write_images(tmp_path / "db", 24)
    net = nets.tower("db").replace('layer {\n  name: "ip2" type: "InnerProduct" bottom: "ip1" ', LAYER.strip() + " ")
    assert "Stopping" in net
    (tmp_path / "net.prototxt").write_text(net)
    nets.write_solver(tmp_path, net, max_iter=6, snapshot_after_train=True, snapshot_prefix="snap")
    started: list[subprocess.Popen[str]] = []

    def start(ranks: int, stopping: int, *flags: str, command: Sequence[str] = TRAIN) -> Job:
        where = "backward" if command is TRAIN else "forward"
        (tmp_path / "stopping.py").write_text(
            (nets.SAME + STOPPING).format(rank=stopping, iteration=ITERATION, where=where)
        )
        scaffe = [sys.executable, "-m", "scaffe", *command, "--allow-python-layers"]
        started.append(mpirun.start(ranks, *scaffe, *flags, cwd=tmp_path))
        end_late(started[-1])
        return Job(started[-1])

    yield start
    for process in started:
        process.terminate()
        process.communicate()


def missing(rank: int) -> str:
    """Return what is said of the rank that stopped."""
    place = f"last seen in backward pass of layer stopping, iteration {ITERATION}, "
    return rf"rank {rank} on \S+: {place}[\d.]+ s ago; its process has not run for [\d.]+ s$"


def weights(folder: Path) -> bytes:
    [path] = folder.glob("snap*.caffemodel")
    return path.read_bytes()


@pytest.mark.parametrize(("ranks", "rank", "way"), [(2, 0, "SC-B"), (3, 1, "SC-OBR, helper")], ids=str)
def test_a_stopped_rank_is_named_and_when_it_goes_on_nothing_was_lost(train, tmp_path, ranks, rank, way) -> None:
    undisturbed = train(ranks, NOBODY, *WAYS[way], "--stall-seconds", "30", "--stall-abort")
    assert undisturbed.end() == 0 and "Stall" not in undisturbed.log
    expected = weights(tmp_path)
    job = train(ranks, rank, *WAYS[way], "--stall-seconds", SECONDS)
    pid = job.stopped()
    for _ in range(2):  # it is said again
        job.read_until(r"Stall: rank \d has not moved for [\d.]+ s: .* waiting for .*; missing:$")
        job.read_until("Stall: " + missing(rank))
    os.kill(pid, signal.SIGCONT)
    assert job.end() == 0
    assert "Optimization Done." in job.log and weights(tmp_path) == expected


@pytest.mark.parametrize("way", ["SC-B", "SC-OBR, hook"])
def test_with_stall_abort_the_report_ends_the_job(train, tmp_path, way) -> None:
    job = train(2, 1, *WAYS[way], "--stall-seconds", SECONDS, "--stall-abort")
    job.read_until("^scaffe: " + missing(1))
    assert job.end() != 0
    assert not list(tmp_path.glob("snap_iter*"))


def test_scaffe_test_says_who_is_missing_and_goes_on(train, tmp_path) -> None:
    make_weights(tmp_path)
    undisturbed = train(2, NOBODY, "--stall-seconds", "30", command=TEST)
    assert undisturbed.end() == 0 and "Stall" not in undisturbed.log
    job = train(2, 1, "--stall-seconds", SECONDS, command=TEST)
    pid = job.stopped()
    job.read_until(
        r"Stall: rank 0 has not moved for [\d.]+ s: test, layer loss, waiting for the other ranks; missing:$"
    )
    job.read_until(r"Stall: rank 1 on \S+: last seen in test, layer stopping, [\d.]+ s ago; its process has not run")
    os.kill(pid, signal.SIGCONT)
    assert job.end() == 0
    assert scores(job) == scores(undisturbed) != []


def make_weights(folder: Path) -> None:
    """Write weights for the net, which don't depend on the layer that stops."""
    (folder / "plain.prototxt").write_text(nets.tower(folder / "db"))
    scaffe.Net(str(folder / "plain.prototxt"), scaffe.TEST).save(str(folder / "w.caffemodel"))


def scores(job: Job) -> list[str]:
    return re.findall(r"\] (Batch .*|Loss: .*|loss = .*)", job.log)
