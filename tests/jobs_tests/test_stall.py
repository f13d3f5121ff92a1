"""A rank that is stopped: the others say that it is missing, wait for it, and go on as if nothing had been."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import nets
import pytest

SECONDS = "0.8"
PLACE = r"(set-up|(forward|backward) pass( of layer \w+)?|agreement on the loss|update)(, waiting for [\w' ]+)?"
WAYS = {
    "SC-B": ["--workflow", "SC-B"],
    "SC-OBR, helper": ["--workflow", "SC-OBR", "--reduce", "chain", "--drive", "helper"],
    "SC-OBR, hook": ["--workflow", "SC-OBR", "--reduce", "chain", "--drive", "hook"],
}
pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own


class Job:
    """A running `scaffe train` of several ranks, whose process ids are known."""

    def __init__(self, process: subprocess.Popen[str], ranks: int):
        self.process = process
        self.pids = dict(tuple(map(int, process.stdout.readline().split())) for _ in range(ranks))  # type: ignore

    def read_until(self, pattern: str) -> re.Match[str]:
        read = []
        for line in self.process.stderr:  # type: ignore[union-attr]
            read.append(line)
            if found := re.search(pattern, line):
                return found
        pytest.fail(f"the log ended without '{pattern}':\n{''.join(read)}", pytrace=False)

    def end(self) -> str:
        return self.process.communicate(timeout=30)[1]


@pytest.fixture
def train(mpirun, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Start `scaffe train`, 600 iterations and a snapshot."""
    nets.write_images(tmp_path / "db", 24)
    nets.write_solver(
        tmp_path, nets.tower("db"), max_iter=600, display=1, snapshot_after_train=True, snapshot_prefix="snap"
    )
    started: list[subprocess.Popen[str]] = []

    def start(ranks: int, *flags: str) -> Job:
        told = 'echo "${OMPI_COMM_WORLD_RANK-$PMI_RANK} $$"; exec "$@"'  # exec keeps the process id
        command = ["sh", "-c", told, "sh", sys.executable, "-m", "scaffe", "train", "--solver", "solver.prototxt"]
        started.append(mpirun.start(ranks, *command, *flags, cwd=tmp_path))
        return Job(started[-1], ranks)

    yield start
    for process in started:
        process.terminate()  # mpirun ends its ranks
        process.communicate()


def weights(folder: Path) -> bytes:
    [path] = folder.glob("snap*.caffemodel")
    return path.read_bytes()


@pytest.mark.parametrize(
    ("ranks", "stopped", "way"), [(2, 1, "SC-B"), (3, 1, "SC-OBR, helper"), (2, 0, "SC-OBR, hook")]
)
def test_a_stopped_rank_is_named_and_when_it_goes_on_nothing_was_lost(train, tmp_path, ranks, stopped, way) -> None:
    undisturbed = train(ranks, *WAYS[way])
    undisturbed.end()
    assert undisturbed.process.returncode == 0
    expected = weights(tmp_path)
    job = train(ranks, *WAYS[way], "--stall-seconds", SECONDS)
    job.read_until(r"Iteration 3,")
    os.kill(job.pids[stopped], signal.SIGSTOP)
    for _ in range(2):  # it is said again
        job.read_until(r"Stall: rank \d has not moved for \d+ s: .* waiting for .*; missing")
        job.read_until(
            rf"Stall: rank {stopped} on \S+: last seen in {PLACE}, iteration \d+, \d+ s ago; its process has not run"
        )
    os.kill(job.pids[stopped], signal.SIGCONT)
    log = job.end()
    assert job.process.returncode == 0 and "Optimization Done." in log
    assert weights(tmp_path) == expected


@pytest.mark.parametrize("way", ["SC-B", "SC-OBR, helper"])
def test_with_stall_abort_the_report_ends_the_job(train, tmp_path, way) -> None:
    job = train(2, *WAYS[way], "--stall-seconds", SECONDS, "--stall-abort")
    job.read_until(r"Iteration 3,")
    os.kill(job.pids[1], signal.SIGSTOP)
    job.read_until(rf"^scaffe: rank 1 on \S+: last seen in {PLACE}, iteration \d+, \d+ s ago; its process has not run")
    job.end()
    assert job.process.returncode != 0
    assert not list(tmp_path.glob("snap*"))


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf"])
def test_a_time_that_is_none_is_refused(train, seconds) -> None:
    job = train(1, "--stall-seconds", seconds)
    assert f"stall_seconds must be 0 (off) or more, got {seconds}" in job.end()
    assert job.process.returncode == 2
