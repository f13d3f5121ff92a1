"""--stall shrink: ranks that hang are given up; the others end with what a resumed run of so many ranks computes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import nets
import pytest

SECONDS = "3"  # the stall time: longer than a busy machine keeps a rank from running
LONGEST = 300  # seconds of a job
END, WHEN = 6, 3  # iterations, and the one in which a rank hangs
pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own
LAYER = """
layer {
  name: "hanging" type: "Python" bottom: "ip1" top: "hung" python_param { module: "hanging" layer: "Hanging" }
}
layer { name: "ip2" type: "InnerProduct" bottom: "hung" """
HANGING = """
import os, signal, threading
from scaffe.parallel.giving_up import GivingUp
from scaffe.parallel.stall import StallWatch
from scaffe.parallel.world import launcher_rank

hung, how, where = os.environ.get("HANGING", "- - -").split()
fence = StallWatch.fence

def hang():
    if launcher_rank() == int(hung):
        print(os.getpid(), flush=True)
        if how == "stop":
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # all threads, and this one here and now
        while how == "loop":
            pass

class Hanging(Same):
    calls = 0

    def forward(self, bottom, top):
        super().forward(bottom, top)
        self.calls += 1
        if (where, self.calls) == ("forward", {when} + 1):
            hang()

    def backward(self, top, propagate_down, bottom):
        super().backward(top, propagate_down, bottom)
        if (where, self.calls) == ("backward", {when} + 1):
            hang()

def hanging_fence(self):
    hang()
    fence(self)

if where == "snapshot":
    StallWatch.fence, GivingUp._kill = hanging_fence, lambda self, one: None
"""


class Trainings:
    """Starts trainings in a folder, in which a rank may hang."""

    def __init__(self, mpirun, folder: Path):
        self.mpirun, self.folder = mpirun, folder
        self.started: list[subprocess.Popen[str]] = []
        self.watchdogs: list[threading.Timer] = []
        images = nets.write_images(folder / "db", 36)
        net = nets.tower(images).replace(
            'layer {\n  name: "ip2" type: "InnerProduct" bottom: "ip1" ', LAYER.strip() + " "
        )
        assert "Hanging" in net
        (folder / "net.prototxt").write_text(net)
        (folder / "hanging.py").write_text((nets.SAME + HANGING).format(when=WHEN))

    def start(self, ranks: int, *flags: str, hanging: str = "", end: int = END, **fields) -> subprocess.Popen[str]:
        net = (self.folder / "net.prototxt").read_text()
        nets.write_solver(self.folder, net, max_iter=end, snapshot_after_train=True, snapshot_prefix="snap", **fields)
        env = {**os.environ, "PYTHONPATH": str(self.folder), "NO_COLOR": "1", "SCAFFE_VENV": sys.prefix}
        shrink = ["--on-rank-loss", "shrink", "--stall", "shrink", "--stall-seconds", SECONDS] if hanging else []
        train = [sys.executable, "-m", "scaffe", "train", "--solver", "solver.prototxt", "--allow-python-layers"]
        launch = ["--with-ft", "ulfm"] if hanging else []
        process = self.mpirun.start(
            ranks,
            *launch,
            *train,
            *shrink,
            *flags,
            cwd=self.folder,
            env=env | ({"HANGING": hanging} if hanging else {}),
        )
        self.started.append(process)
        self.watchdogs.append(threading.Timer(LONGEST, process.terminate))  # mpirun ends its ranks
        self.watchdogs[-1].start()
        return process

    def run(self, ranks: int, *flags: str, **given) -> str:
        """Return the log of a training that ends well."""
        process = self.start(ranks, *flags, **given)
        log = process.communicate()[1]
        assert process.returncode == 0, log
        return log

    def files(self) -> list[bytes]:
        """Return the last weights and state, and remove all snapshots."""
        found = [(self.folder / f"snap_iter_{END}.{kind}").read_bytes() for kind in ("caffemodel", "solverstate")]
        for path in self.folder.glob("snap_iter_*"):
            path.unlink()
        return found

    def resumed(self, ranks: int, left: int, at: int, *flags: str) -> list[bytes]:
        """Return the files of a run that stops on `ranks` ranks and goes on with those that are left."""
        self.run(ranks, *flags, end=at)
        self.run(left, *flags, "--snapshot", f"snap_iter_{at}.solverstate")
        return self.files()

    def close(self) -> None:
        for process, watchdog in zip(self.started, self.watchdogs, strict=True):
            watchdog.cancel()
            process.terminate()
            process.communicate()


@pytest.fixture
def trainings(mpirun, tmp_path: Path) -> Iterator[Trainings]:
    if "Open MPI" not in mpirun(1, "--version").stdout:
        pytest.skip("only Open MPI goes on without a rank")
    trainings = Trainings(mpirun, tmp_path)
    yield trainings
    trainings.close()


@pytest.mark.parametrize(
    ("hanging", "flags", "told"),
    [
        (
            "0 stop backward",
            ("--sync", "allreduce", "--reduce", "ring"),
            r"Stall: rank 0 on .* is given up: its process has not run for",
        ),
        (
            "1 stop forward",
            ("--workflow", "SC-OBR", "--reduce", "chain"),
            r"Stall: rank 1 on .* is given up: its process has not run for",
        ),
        (
            "2 loop backward",
            ("--workflow", "SC-OBR", "--drive", "helper"),
            r"rank 2 is given up: it hangs in backward pass of layer hanging",
        ),
    ],
)
def test_a_rank_that_hangs_is_given_up_and_the_others_go_on(trainings, hanging, flags, told) -> None:
    log = trainings.run(3, *flags, hanging=hanging)
    assert re.search(told, log), log
    assert f"Lost rank {hanging[0]} " in log and log.count("Lost rank") == 1
    assert f"2 rank(s) are left; they go on at iteration {WHEN} after" in log
    assert trainings.files() == trainings.resumed(3, 2, WHEN, *flags)


def test_a_rank_that_nobody_could_kill_ends_itself_when_it_wakes_and_writes_nothing(trainings) -> None:
    allreduce = "--sync", "allreduce", "--reduce", "ring"
    process = trainings.start(3, *allreduce, hanging="0 stop snapshot", snapshot=WHEN)
    pid, log = int(process.stdout.readline()), ""
    while len(re.findall(r"rank 0 on .*; its process has not run for", log)) < 2:
        line = process.stderr.readline()
        assert line, log
        log += line
    os.kill(pid, signal.SIGCONT)
    log += process.communicate()[1]
    assert process.returncode == 0, log
    assert len(re.findall(r"^scaffe: rank 0 is given up: its process did not run for \d+ s while", log, re.M)) == 1
    assert log.count(f"Snapshotting to binary proto file snap_iter_{WHEN}.caffemodel") == 1
    assert trainings.files() == trainings.resumed(3, 2, WHEN, *allreduce)
