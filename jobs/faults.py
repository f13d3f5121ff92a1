#!/usr/bin/env python3
"""Kill and stop processes of a training at every moment, and check that it ends clearly and resumes to the bit.

    python jobs/faults.py --cells 40 --seed 1        # 40 cells of the matrix
    python jobs/faults.py --minutes 30               # as many as that time allows
    python jobs/faults.py --cell kill,forward,root,SC-B,3,2,waiting

A cell is a fault, a moment, the ranks that are hit, a workflow, the number of ranks, the iteration, and how snapshots
are written. Its job must end within --longest seconds with a line that says why, and leave no process, no shared memory
and no temporary file. A second job resumes at the newest snapshot; its last snapshot must have the bytes of a run that
nothing disturbed. Prints a line for each cell, and for one that failed the command to repeat it. Exit code 1 if any
failed. Another outcome than "stop, then resume" is another function beside `stop_and_resume`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from typing import NamedTuple

import numpy as np

from readers import encode, write_lmdb
from scaffe.files.prefix_lock import start_of

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from fault_moments import EXIT, FAULTS, KILL, MOMENTS, RESTORE, ROOTS, SET_UP, STOP  # noqa: E402

STALL = 3  # seconds without progress after which a job whose rank is stopped ends
LAST = 6  # iterations
EVERY = 2  # iterations between snapshots
WORKFLOWS = {
    "SC-B": ["--workflow", "SC-B"],
    "SC-OB": ["--workflow", "SC-OB", "--drive", "hook"],
    "SC-OBR-hook": ["--workflow", "SC-OBR", "--drive", "hook"],
    "SC-OBR-helper": ["--workflow", "SC-OBR", "--drive", "helper"],
    "allreduce": ["--workflow", "SC-OBR", "--drive", "hook", "--sync", "allreduce"],
}
VICTIMS = ("root", "another", "two")
OF_MPICH = "/dev/shm/mpich_shm_"  # begins the name of memory that MPICH leaves when any of its processes is killed
WRITING = {"waiting": [], "async": ["--snapshot-async"]}
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
test_iter: 4 test_interval: 2 snapshot: {EVERY} snapshot_prefix: "snap" solver_mode: CPU
"""


class Cell(NamedTuple):
    """A cell of the matrix."""

    fault: str
    moment: str
    victims: str
    workflow: str
    ranks: int
    iteration: int
    writing: str

    def __str__(self) -> str:
        return ",".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Return the cell that is written like this."""
        fault, moment, victims, workflow, ranks, iteration, writing = text.split(",")
        return cls(fault, moment, victims, workflow, int(ranks), int(iteration), writing)

    @property
    def hit(self) -> list[int]:
        """The ranks that are hit."""
        return {"root": [0], "another": [self.ranks - 1], "two": [0, self.ranks - 1]}[self.victims]

    @property
    def is_there(self) -> bool:
        """Whether the moment can come: some are the root's, some have no watchdog, or come once."""
        if self.moment in ROOTS:
            return self.victims == "root" and self.iteration > 0
        if self.moment == SET_UP[0] and self.fault == STOP:
            return False  # the watchdog over stalls runs from the end of the set-up
        if self.moment in (*SET_UP, RESTORE):
            return self.iteration == -1
        if self.moment == "broadcast" and self.workflow == "allreduce":
            return self.iteration == 0
        return self.iteration >= 0


def matrix() -> list[Cell]:
    """Return all cells."""
    sizes, iterations = (3, 4), (-1, 0, 1, 2, 3)
    axes = FAULTS, MOMENTS, VICTIMS, WORKFLOWS, sizes, iterations, WRITING
    return [cell for cell in itertools.starmap(Cell, itertools.product(*axes)) if cell.is_there]


def drawn(seed: int) -> Iterator[Cell]:
    """Yield the cells in an order drawn by a seed, the moments in turn."""
    cells, moments, numbers = matrix(), list(MOMENTS), random.Random(seed)
    numbers.shuffle(cells)
    numbers.shuffle(moments)
    turns = [[cell for cell in cells if cell.moment == moment] for moment in moments]
    return (cell for turn in itertools.zip_longest(*turns) for cell in turn if cell is not None)


class Ended(NamedTuple):
    """A job that has ended: its exit code, None if it was still running when it had to be ended, and what it wrote."""

    code: int | None
    log: str


class Job:
    """A folder in which a training can be started again and again, each time for at most so many seconds."""

    def __init__(self, folder: Path, seconds: float):
        self.folder, self.seconds = folder, seconds
        (folder / "tmp").mkdir(parents=True)
        (folder / "net.prototxt").write_text(NET)
        (folder / "solver.prototxt").write_text(SOLVER)
        images = np.random.default_rng(1).integers(0, 256, (36, 1, 12, 12), np.uint8)
        write_lmdb(folder / "db", [(b"%04d" % i, encode(image, i % 10)) for i, image in enumerate(images)])

    def train(self, cell: Cell, trap: bool, *flags: str) -> Ended:
        """Start the ranks of a cell, with its fault or without, and wait for the end."""
        for old in self.folder.glob("rank.*"):
            old.unlink()
        hit = ",".join(map(str, cell.hit)) if trap else "-"
        words = [cell.fault, cell.moment, str(cell.iteration), hit, "train", "--solver", "solver.prototxt"]
        words += ["--plan", "fixed", "--bucket-bytes", "0", "--keep-snapshots", "2", *WORKFLOWS[cell.workflow], *flags]
        command = [HERE / "mpirun.sh", "-n", str(cell.ranks), sys.executable, HERE / "fault_moments.py", *words]
        env = {**os.environ, "TMPDIR": str(self.folder / "tmp"), "PYTHONPATH": str(HERE.parent), "NO_COLOR": "1"}
        env["SCAFFE_VENV"] = sys.prefix
        process = subprocess.Popen(
            command, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            return Ended(*reversed((process.communicate(timeout=self.seconds)[0], process.returncode)))
        except subprocess.TimeoutExpired:
            self.kill()
            process.terminate()
            return Ended(None, process.communicate()[0])

    def pids(self) -> list[int]:
        """Return the process ids of the ranks that run still."""
        found = [int(path.read_text() or 0) for path in self.folder.glob("rank.*.pid")]
        return [pid for pid in found if start_of(pid) != -1]

    def kill(self) -> None:
        """Kill the ranks that run still."""
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)

    def left(self) -> str:
        """Return what the job has left behind, "" if nothing."""
        end = time.monotonic() + 5
        while self.pids() and time.monotonic() < end:
            time.sleep(0.01)
        mapped = {name for path in self.folder.glob("rank.*.shm") for name in path.read_text().split()}
        shared = {name for one in mapped for name in glob(re.sub(r"\.\d+$", ".*", one))}  # those of all ranks
        left = [f"process {pid}" for pid in self.pids()]
        left += sorted(name for name in shared if not name.startswith(OF_MPICH))
        left += [str(path.relative_to(self.folder)) for path in (self.folder / "tmp").rglob("*") if path.is_file()]
        self.kill()
        for name in shared:
            os.unlink(name)
        return ", ".join(left)

    def last(self) -> dict[str, bytes]:
        """Return the files of the last snapshot by name."""
        return {path.name: path.read_bytes() for path in self.folder.glob(f"snap_iter_{LAST}.*")}


def says_why(log: str) -> bool:
    """Return whether a log says in a line that a process was lost, or that a rank is missing."""
    if "Traceback" in log:
        return False
    return bool(re.search(r"signal \d|SIGNAL|[Ee]xit code|EXIT CODE|scaffe: rank \d+ has not moved", log))


def stop_and_resume(cell: Cell, job: Job, expected: dict[str, bytes]) -> str:
    """Return what went wrong in a cell whose job ends, and is resumed; "" if nothing."""
    flags = [*WRITING[cell.writing]]
    if cell.fault == STOP:
        flags += ["--stall-seconds", str(STALL), "--stall-abort"]
    if cell.moment == RESTORE:
        first = job.train(cell._replace(fault=KILL, moment="forward", iteration=3), True)
        if first.code in (0, None):
            return f"the run to be restored ended with {first.code}"
        flags += ["--snapshot", "auto"]
    ended = job.train(cell, True, *flags)
    (job.folder / "stopped.log").write_text(ended.log)
    if ended.code is None:
        return "the job hangs"
    if not list(job.folder.glob("rank.*.shm")):
        return f"the moment never came (exit code {ended.code})"
    if ended.code == 0:
        return "the job went on"
    silent = cell.fault == EXIT and "Traceback" not in ended.log  # MPICH says nothing of such a process
    if not (silent or says_why(ended.log)):
        return "no clear line says why the job ended"
    if left := job.left():
        return f"left behind: {left}"
    return resume(cell, job, expected)


def resume(cell: Cell, job: Job, expected: dict[str, bytes]) -> str:
    """Return what goes wrong when a job that was stopped is resumed."""
    states = [int(re.findall(r"\d+", path.name)[0]) for path in job.folder.glob("snap_iter_*.solverstate")]
    ended = job.train(cell, False, "--snapshot", "auto", *WRITING[cell.writing])
    (job.folder / "resumed.log").write_text(ended.log)
    if ended.code != 0:
        return f"the job is not resumed (exit code {ended.code})"
    restored = re.findall(r"Restored iteration (\d+) from", ended.log)
    if restored != ([str(max(states))] if states else []) or "Passing over" in ended.log:
        return f"restored {restored or 'nothing'} where there are snapshots of {states}"
    if job.last() != expected:
        return "the last snapshot has other bytes than that of the run that nothing disturbed"
    left = [path.name for path in job.folder.iterdir() if re.search(r"\.tmp$|\.lock|\.next$", path.name)]
    return f"left behind: {', '.join(left)}" if left else ""


class Matrix:
    """Runs cells below a folder; undisturbed runs are made once for each workflow and number of ranks."""

    def __init__(self, folder: Path, seconds: float):
        self.folder, self.seconds = folder, seconds
        self._expected: dict[tuple[str, int], dict[str, bytes]] = {}

    def expected(self, cell: Cell) -> dict[str, bytes]:
        """Return the last snapshot of the run that nothing disturbs."""
        key = cell.workflow, cell.ranks
        if key not in self._expected:
            job = Job(self.folder / f"{cell.workflow}-{cell.ranks}", self.seconds)
            ended = job.train(cell, False)
            if ended.code != 0 or len(job.last()) != 2:
                raise SystemExit(f"faults.py: the undisturbed run failed:\n{ended.log}")
            self._expected[key] = job.last()
        return self._expected[key]

    def run(self, cell: Cell) -> str:
        """Run a cell; return what went wrong, "" if nothing."""
        expected = self.expected(cell)
        return stop_and_resume(cell, Job(self.folder / str(cell), self.seconds), expected)


def arguments() -> argparse.Namespace:
    """Return the command line's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cells", type=int, default=0, help="number of cells; 0: as many as there is time for")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the cells")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no cell later")
    parser.add_argument("--longest", type=float, default=60.0, help="seconds of a job; longer ones hang")
    parser.add_argument("--cell", type=Cell.parse, action="append", help="run this cell")
    parser.add_argument("--only", default="", help="run cells that match this pattern alone")
    parser.add_argument("--keep", metavar="FOLDER", help="make this folder, and keep the files of all jobs in it")
    return parser.parse_args()


def run(a: argparse.Namespace, folder: Path) -> int:
    """Run the cells; return the number of those that failed."""
    end = time.monotonic() + 60 * a.minutes
    cells = a.cell or [cell for cell in drawn(a.seed) if re.search(a.only, str(cell))]
    matrix, count, failed = Matrix(folder, a.longest), 0, 0
    for count, cell in enumerate(cells[: a.cells or None], 1):
        if time.monotonic() > end:
            count -= 1
            break
        begin = time.monotonic()
        wrong = matrix.run(cell)
        print(f"{wrong or 'ok':<10} {time.monotonic() - begin:5.1f} s  {cell}", flush=True)
        if wrong:
            failed += 1
            print(f"    to repeat: python jobs/faults.py --keep FOLDER --cell {cell}", flush=True)
    print(f"{count} cells, {failed} failed")
    return failed


def main() -> int:
    """Run the cells of the command line; return the exit code."""
    a = arguments()
    if a.keep:
        Path(a.keep).mkdir(parents=True)
        return bool(run(a, Path(a.keep)))
    with tempfile.TemporaryDirectory(prefix="faults.") as folder:
        return bool(run(a, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
