"""--stall shrink: ranks that hang are given up; the others end with what a resumed run of so many ranks computes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nets
import pytest
from conftest import environment
from patience import end_late

SECONDS = "4"  # the stall time: longer than a busy machine keeps a rank from running
END, WHEN = 6, 3  # iterations, and the one in which a rank hangs
pytestmark = [pytest.mark.mpi_skip, pytest.mark.watchdog(300)]  # they start an mpirun of their own, or three
LAYER = """
layer {
  name: "hanging" type: "Python" bottom: "ip1" top: "hung" python_param { module: "hanging" layer: "Hanging" }
}
layer { name: "ip2" type: "InnerProduct" bottom: "hung" """
HANGING = """
import os, signal, threading
from scaffe.parallel.watch.hanging import Hanging as HangingRanks
from scaffe.parallel.watch.heartbeats import Heartbeats
from scaffe.parallel.world import launcher_rank

hung, how, where = os.environ.get("HANGING", "- - -").split()
fence = Heartbeats.fence

def hang():
    if launcher_rank() == int(hung):
        print(os.getpid(), flush=True)
        if how == "stop":
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # all threads, and this one here and now
        if how == "exit":
            os._exit(1)
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
    Heartbeats.fence = fence  # at the first snapshot alone
    hang()
    fence(self)

if where == "snapshot":
    Heartbeats.fence, HangingRanks._kill = hanging_fence, lambda self, one: None
"""


class Trainings:
    """Starts trainings, each in a folder of its own, in which a rank may hang."""

    def __init__(self, mpirun, folder: Path):
        self.mpirun, self.folder = mpirun, folder
        self.started: list[subprocess.Popen[str]] = []
        self._resumed: dict[tuple[str, ...], list[bytes]] = {}
        first = 'layer {\n  name: "ip2" type: "InnerProduct" bottom: "ip1" '
        self.net = nets.tower(nets.write_images(folder / "db", 36)).replace(first, LAYER.strip() + " ")
        assert "Hanging" in self.net
        (folder / "hanging.py").write_text((nets.SAME + HANGING).format(when=WHEN))

    def start(self, name: str, ranks: int, *flags: str, hanging: str = "", end: int = END, **fields):
        """Return the running mpirun."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        nets.write_solver(folder, self.net, max_iter=end, snapshot_after_train=True, snapshot_prefix="snap", **fields)
        env = {**environment(), "PYTHONPATH": os.pathsep.join([str(self.folder), environment()["PYTHONPATH"]])}
        launch, shrink = [], []
        if hanging:
            launch, env["HANGING"] = ["--with-ft", "ulfm"], hanging
            shrink = ["--on-rank-loss", "shrink", "--stall", "shrink", "--stall-seconds", SECONDS]
        train = [sys.executable, "-m", "scaffe", "train", "--solver", "solver.prototxt", "--allow-python-layers"]
        process = self.mpirun.start(ranks, *launch, *train, *shrink, *flags, cwd=folder, env=env)
        self.started.append(process)
        end_late(process)
        return process

    def run(self, name: str, ranks: int, *flags: str, **given) -> str:
        """Return the log of a training that ends well."""
        process = self.start(name, ranks, *flags, **given)
        log = process.communicate()[1]
        assert process.returncode == 0, log
        return log

    def files(self, name: str) -> list[bytes]:
        """Return the last weights and state."""
        return [(self.folder / name / f"snap_iter_{END}.{kind}").read_bytes() for kind in ("caffemodel", "solverstate")]

    def resumed(self, *flags: str) -> list[bytes]:
        """Return the files of a run that stops on three ranks and goes on with two."""
        if flags not in self._resumed:
            name = "resumed" + "".join(flags)
            self.run(name, 3, *flags, end=WHEN)
            self.run(name, 2, *flags, "--snapshot", f"snap_iter_{WHEN}.solverstate")
            self._resumed[flags] = self.files(name)
        return self._resumed[flags]

    def close(self) -> None:
        for process in self.started:
            process.terminate()
            process.communicate()


@pytest.fixture(scope="module")
def trainings(tolerant_mpirun, tmp_path_factory) -> Iterator[Trainings]:
    trainings = Trainings(tolerant_mpirun, tmp_path_factory.mktemp("hangs"))
    yield trainings
    trainings.close()


ALLREDUCE = "--sync", "allreduce", "--reduce", "ring"
CHAIN = "--workflow", "SC-OBR", "--reduce", "chain"


@pytest.mark.parametrize(
    ("hanging", "flags", "told"),
    [
        ("0 stop backward", ALLREDUCE, r"Stall: rank 0 on .* is given up: its process has not run for"),
        ("1 stop forward", CHAIN, r"Stall: rank 1 on .* is given up: its process has not run for"),
        ("2 loop backward", CHAIN, r"rank 2 is given up: it hangs in backward pass of layer hanging, iteration 3"),
    ],
    ids=["root stopped", "another stopped", "endless layer"],
)
def test_a_rank_that_hangs_is_given_up_and_the_others_go_on(trainings, hanging, flags, told) -> None:
    log = trainings.run(hanging, 3, *flags, hanging=hanging)
    assert len(re.findall(told, log)) == log.count("is given up") == 1, log
    assert f"Lost rank {hanging[0]} " in log and log.count("Lost rank") == 1
    assert f"Ranks left: 2; they go on at iteration {WHEN} after" in log
    assert trainings.files(hanging) == trainings.resumed(*flags)


def test_a_rank_that_ends_without_mpis_report_ends_the_job(trainings) -> None:
    process = trainings.start("exits", 3, *CHAIN, hanging="1 exit forward")
    log = process.communicate()[1]
    assert process.returncode != 0
    told = r"^scaffe: rank 1 \(process \d+\) on \S+ has ended, which MPI does not report$"
    assert len(re.findall(told, log, re.M)) == 1 and "Lost rank" not in log, log


def test_a_rank_that_nobody_could_kill_ends_itself_when_it_wakes_and_writes_nothing(trainings) -> None:
    process = trainings.start("wakes", 3, *ALLREDUCE, hanging="0 stop snapshot", snapshot=WHEN)
    pid, log = int(process.stdout.readline()), ""
    while len(re.findall(r"rank 0 on .*; its process has not run for", log)) < 2:
        line = process.stderr.readline()
        assert line, log
        log += line
    os.kill(pid, signal.SIGCONT)
    log += process.communicate()[1]
    assert process.returncode == 0, log
    told = r"^scaffe: rank 0 is given up: its process did not run for \d+ s while other ranks did$"
    assert len(re.findall(told, log, re.M)) == 1, log
    assert log.count(f"Snapshotting to binary proto file snap_iter_{WHEN}.caffemodel") == 1
    assert trainings.files("wakes") == trainings.resumed(*ALLREDUCE)
