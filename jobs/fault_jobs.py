"""The jobs of the matrix of faults: a small training, with faults or without, and what it leaves behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fault_cells import LAST, WORKFLOWS, WRITING
from fault_moments import DYING, KILL, START, Hit

from readers import encode, write_lmdb
from scaffe.files.process_state import start_of

HERE = Path(__file__).resolve().parent
EVERY = 2  # iterations between snapshots
OF_MPICH = "/dev/shm/mpich_shm_"  # begins the name of memory that MPICH leaves when any of its processes is killed
LEAST_SHARE = 0.2  # of a core that a job has, on a machine that others use
LONGEST_END, LOOK = 5.0, 0.02  # seconds until nothing is left of a job that has ended, and between two looks
FAULT_TOLERANT = ["--ft"]  # of mpirun.sh
NET = """
name: "faults"
layer { name: "images" type: "Data" top: "data" top: "label" transform_param { scale: 0.004 }
  data_param { source: "db" batch_size: 12 backend: LMDB } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 8 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "ip1" type: "InnerProduct" bottom: "conv" top: "ip1"
  inner_product_param { num_output: 300 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""
SOLVER = f"""
net: "net.prototxt" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" display: 1 max_iter: {LAST} random_seed: 7
test_iter: 4 test_interval: 2 snapshot_prefix: "snap" solver_mode: CPU
"""


Look = Callable[[], object]


class Training(NamedTuple):
    """What a job trains: the prototxts, the solver's without the iterations between snapshots, and flags."""

    net: str = NET
    solver: str = SOLVER
    flags: tuple[str, ...] = ("--bucket-bytes", "0")


class Ended(NamedTuple):
    """A job that has ended: its exit code, None if it was still running when it had to be ended, and what it wrote."""

    code: int | None
    log: str


def share() -> float:
    """Return which part of a core each process has that runs now: 1 where there is room."""
    running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    return min(1.0, (os.cpu_count() or 1) / max(1, running))


def written(process: subprocess.Popen[str], seconds: float, look: Look = lambda: None) -> str | None:
    """Return what a process writes until it ends; None if that takes so many seconds of a machine of its own.

    `look` is called each second.
    """
    counted = 0.0
    while counted < seconds:
        begin = time.monotonic()
        try:
            return process.communicate(timeout=1)[0]
        except subprocess.TimeoutExpired:
            counted += min(time.monotonic() - begin, 1) * max(share(), LEAST_SHARE)  # more: the machine stood still
            look()
    return None


class Job:
    """A folder in which a training can be started again and again, each time for at most so many seconds."""

    def __init__(self, folder: Path, seconds: float, every: int = EVERY, training: Training = Training()):  # noqa: B008
        self.folder, self.seconds, self.flags = folder, seconds, training.flags
        (folder / "tmp").mkdir(parents=True)
        (folder / "net.prototxt").write_text(training.net)
        (folder / "solver.prototxt").write_text(f"{training.solver} snapshot: {every}")
        images = np.random.default_rng(1).integers(0, 256, (36, 1, 12, 12), np.uint8)
        write_lmdb(folder / "db", [(b"%04d" % i, encode(image, i % 10)) for i, image in enumerate(images)])

    def train(
        self, workflow: str, ranks: int, *flags: str, hits: Sequence[Hit] = (), launch: Sequence[str] = ()
    ) -> Ended:
        """Start so many ranks, of which some are hit, and wait for the end."""
        for old in self.folder.glob("rank.*"):
            old.unlink()
        words = [",".join(":".join(map(str, hit)) for hit in hits) or "-", "train", "--solver", "solver.prototxt"]
        words += ["--plan", "fixed", *self.flags, *WORKFLOWS[workflow], *flags]
        env = {**os.environ, "PYTHONPATH": str(HERE.parent), "NO_COLOR": "1"}
        env |= {"SCAFFE_VENV": sys.prefix, "OMP_NUM_THREADS": "1"}
        launcher, more = self.launcher(ranks, launch)
        if dying := [str(hit.rank) for hit in hits if hit.moment == START[0]]:
            launcher += ["sh", "-c", DYING, "sh", "+".join(dying)]
        command = [*launcher, sys.executable, HERE / "fault_moments.py", *words]
        process = subprocess.Popen(
            command, cwd=self.folder, env=env | more, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace",
        )  # fmt: skip
        if (log := written(process, self.seconds, self.look)) is not None:
            return Ended(process.returncode, log + self.logs())
        self.kill(self.signal(signal.SIGUSR2))
        process.terminate()
        return Ended(None, process.communicate()[0] + self.logs())

    def launcher(self, ranks: int, launch: Sequence[str]) -> tuple[list[Any], dict[str, str]]:
        """Return the command that starts so many ranks, and its variables."""
        return [HERE / "mpirun.sh", *launch, "-n", str(ranks)], {"TMPDIR": str(self.folder / "tmp")}

    def look(self) -> None:
        """Help the job, which is running, to end."""

    def logs(self, ranks: Iterable[int] = ()) -> str:
        """Return what these ranks have written to files of their own, of all ranks without any."""
        paths = [self.folder / f"rank.{rank}.log" for rank in ranks] or sorted(self.folder.glob("rank.*.log"))
        return "".join(path.read_text(errors="replace") for path in paths if path.exists())

    def codes(self) -> dict[int, int]:
        """Return the exit codes of the ranks that have ended by themselves."""
        paths = self.folder.glob("rank.*.code")
        return {int(path.name.split(".")[1]): int(path.read_text() or -1) for path in paths}

    def changed(self) -> str:
        """Return which files ranks have changed that knew that they were cut off."""
        return "".join(path.read_text() for path in self.folder.glob("rank.*.changed")).replace("\n", "; ")

    def pids(self) -> list[int]:
        """Return the process ids of the ranks that run still."""
        found = [int(path.read_text() or 0) for path in self.folder.glob("rank.*.pid")]
        return [pid for pid in found if start_of(pid) != -1]

    def signal(self, number: int) -> float:
        """Send a signal to the ranks that run still; return the seconds that they need to act on it."""
        for pid in self.pids():
            os.kill(pid, number)
        return 1.0

    def kill(self, wait: float = 0.0) -> None:
        """Kill the ranks that run still, after some seconds."""
        time.sleep(wait)
        self.signal(signal.SIGKILL)

    def mapped(self) -> set[str]:
        """Return the files of shared memory that the ranks had."""
        paths = [*self.folder.glob("rank.*.hit"), *self.folder.glob("rank.*.left")]
        names = {name for path in paths for name in path.read_text().split()}
        return {name for one in names for name in glob(re.sub(r"\.\d+$", ".*", one))}  # those of all ranks

    def left(self) -> str:
        """Return what the job has left behind, "" if nothing, and remove it."""
        counted = 0.0
        while (left := self._left()) and counted < LONGEST_END:  # mpirun.sh removes its own a moment later
            time.sleep(LOOK)
            counted += LOOK * max(share(), LEAST_SHARE)
        self.kill()
        for name in self.mapped():
            os.unlink(name)
        return ", ".join(left)

    def _left(self) -> list[str]:
        """Return the processes and files that are there."""
        shared = sorted(name for name in self.mapped() if not name.startswith(OF_MPICH))
        return [*(f"process {pid}" for pid in self.pids()), *shared, *self._temporary()]

    def _temporary(self) -> list[str]:
        """Return the temporary files that are there."""
        found = [Path(folder, name) for folder, _, names in os.walk(self.folder / "tmp") for name in names]
        return [str(path.relative_to(self.folder)) for path in found if path.is_file()]

    def last(self) -> dict[str, bytes]:
        """Return the files of the last snapshot by name."""
        return {path.name: path.read_bytes() for path in self.folder.glob(f"snap_iter_{LAST}.*")}


Make = Callable[..., Job]  # takes a Job's folder, seconds and iterations between snapshots


class Part(NamedTuple):
    """A part of a training: the iteration at which it begins, and the number of ranks."""

    begin: int
    ranks: int


Parts = tuple[Part, ...]


def followed(parts: Parts, next_one: Part) -> Parts:
    """Return parts that end where another one begins, which may be earlier than the last of them began."""
    parts = tuple(part for part in parts if part.begin < next_one.begin)
    if next_one.begin == LAST or (parts and parts[-1].ranks == next_one.ranks):
        return parts
    return *parts, next_one


class Undisturbed:
    """Trainings that nothing disturbs, which stop and are resumed on other numbers of ranks; each is made once."""

    def __init__(self, folder: Path, seconds: float, make: Make = Job):
        self.folder, self.seconds, self._job_of = folder, seconds, make
        self._made: dict[tuple[str, Parts], Job] = {}

    def last(self, workflow: str, parts: Parts) -> dict[str, bytes]:
        """Return the last snapshot of a training in these parts."""
        return self._job(workflow, parts).last()

    def _job(self, workflow: str, parts: Parts) -> Job:
        if (workflow, parts) not in self._made:
            self._made[workflow, parts] = self._make(workflow, parts)
        return self._made[workflow, parts]

    def _make(self, workflow: str, parts: Parts) -> Job:
        *before, part = parts
        name = "-".join([workflow, *(f"{one.ranks}@{one.begin}" for one in parts)])
        job, flags = self._job_of(self.folder / name, 2 * self.seconds, every=1), []
        if before:
            for path in self._job(workflow, tuple(before)).folder.glob(f"snap_iter_{part.begin}.*"):
                shutil.copy(path, job.folder)
            flags = ["--snapshot", f"snap_iter_{part.begin}.solverstate"]
        ended = job.train(workflow, part.ranks, *flags)
        if ended.code != 0 or len(job.last()) != 2:
            raise SystemExit(f"faults.py: the undisturbed run {name} failed:\n{ended.log}")
        return job


class Killed:
    """Trainings that are killed once they have a snapshot, so that there is one to restore; each is made once."""

    def __init__(self, folder: Path, seconds: float, make: Make = Job):
        self.folder, self.seconds, self._job_of = folder, seconds, make

    def copy(self, workflow: str, ranks: int, folder: Path) -> None:
        """Copy what such a training has left to a folder: snapshots, and the lock of their prefix."""
        made = self.folder / f"{workflow}-{ranks}"
        if not made.exists():
            hit = Hit(KILL, "forward", 3, 1)
            flags = ["--keep-snapshots", "2", *WRITING["waiting"]]  # there is one before the hit
            ended = self._job_of(made, self.seconds).train(workflow, ranks, *flags, hits=[hit])
            if ended.code in (0, None):
                raise SystemExit(f"faults.py: the run to be restored ended with {ended.code}:\n{ended.log}")
        for path in made.glob("snap*"):
            shutil.copy2(path, folder)
