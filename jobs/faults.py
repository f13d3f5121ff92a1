#!/usr/bin/env python3
"""Kill, stop and break processes of a training at every moment, and check that it goes on, or ends clearly.

    python jobs/faults.py --cells 40 --seed 1        # 40 cells of the matrix
    python jobs/faults.py --minutes 60               # as many as that time allows
    python jobs/faults.py --cell kill,forward,root,SC-B,3,2,waiting,shrink

A cell is a fault, a moment, the ranks that are hit, a workflow, the number of ranks, the iteration, how snapshots are
written, and how the job meets a loss. Its job has one of these outcomes, within --longest seconds:

- it goes on: its last snapshot has the bytes of an undisturbed run that was resumed there on the ranks that were left;
- it ends with a line that says why, and a second job resumes at the newest snapshot: the same, on all ranks.

It leaves no process, no shared memory and no temporary file. An exception of a rank always ends the job, with its
traceback. Prints a line for each cell, for one that failed the command to repeat it, and the outcomes' numbers. Exit
code 1 if any failed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from fault_cells import ENDS, LOSS, WRITING, Cell, drawn  # noqa: E402
from fault_jobs import FAULT_TOLERANT, Ended, Job, Part, Parts, Undisturbed, followed  # noqa: E402
from fault_moments import EXIT, KILL, RAISE, RAISED, RESTORE, STOP, Hit  # noqa: E402

STALL = 3  # seconds without progress after which a job whose rank is stopped ends
WENT_ON, RESUMED = "went on", "resumed"  # outcomes
STATE_LOST = 76  # exit code of ranks that can't go on: the solver's state is lost, and there is no snapshot


class FaultError(Exception):
    """What went wrong in a cell."""


class Outcome(NamedTuple):
    """How a cell ended: WENT_ON, RESUMED or FAILED, and why."""

    name: str
    why: str = ""


def says_why(log: str) -> bool:
    """Return whether a log says in a line that a process was lost, or that a rank is missing."""
    if "Traceback" in log:
        return False
    hung = r"scaffe: rank \d+ (has not moved|on \S+ is stopped)"
    return bool(re.search(rf"signal \d|SIGNAL|[Ee]xit code|EXIT CODE|{hung}", log))


SAID = re.compile(
    r"Lost rank \d+ \(.*?\), (?P<set_up>in set-up)?|Restored iteration (?P<restored>\d+) from"
    r"|Ranks left: (?P<left>\d+); they go on at iteration (?P<at>\d+)"
)


def parts_of(log: str, ranks: int, spares: int = 0, resumed: bool = False) -> Parts:
    """Return the parts of a training that so many ranks began, in this job or in one that this job resumes."""
    parts: Parts = (Part(0, ranks),)
    left = ranks
    for said in SAID.finditer(log):
        if said["set_up"]:  # spares take no place then
            left -= 1
            parts = parts if resumed else followed(parts, Part(0, left))
        elif said["restored"]:
            parts = followed(parts, Part(int(said["restored"]), left))
        elif said["left"]:
            left = int(said["left"])
            is_before = resumed and said["at"] == "0"  # before the snapshot is restored
            parts = parts if is_before else followed(parts, Part(int(said["at"]), left))
        elif spares:
            spares -= 1
        else:
            left -= 1
    return parts


class Trial:
    """A cell's job, and what it must equal."""

    def __init__(self, cell: Cell, folder: Path, seconds: float, undisturbed: Undisturbed):
        self.cell, self.undisturbed = cell, undisturbed
        self.job = Job(folder, seconds)

    def run(self) -> str:
        """Run the job, and another one that resumes it if it ends; return the outcome. Raise FaultError."""
        ended = self._train()
        (self.job.folder / "ended.log").write_text(ended.log)
        if ended.code is None:
            raise FaultError("the job hangs")
        cell = self.cell
        self.parts = parts_of(ended.log, cell.ranks, cell.launched - cell.ranks, cell.moment == RESTORE)
        self._check_hits(ended)
        if ended.code == 0:
            self._check_it_may_go_on(ended)
        else:
            self._check_it_says_why(ended)
        if left := self.job.left():
            raise FaultError(f"left behind: {left}")
        if ended.code == 0:
            self._compare()
            return WENT_ON
        self._resume()
        return RESUMED

    def _train(self) -> Ended:
        """Start the ranks, with their faults, and wait for the end."""
        cell = self.cell
        flags = ["--keep-snapshots", "2", *WRITING[cell.writing], *LOSS[cell.loss]]
        if cell.fault == STOP:
            flags += ["--stall-seconds", str(STALL), "--stall", "abort" if cell.loss == ENDS else "shrink"]
        if cell.moment == RESTORE:
            self._make_snapshots()
            flags += ["--snapshot", "auto"]
        launch = [] if cell.loss == ENDS else FAULT_TOLERANT
        return self.job.train(cell.workflow, cell.launched, *flags, hits=cell.hits, launch=launch)

    def _make_snapshots(self) -> None:
        """Run a job that is killed, so that there are snapshots to restore."""
        hit = Hit(KILL, "forward", 3, 1)
        ended = self.job.train(self.cell.workflow, self.cell.ranks, "--keep-snapshots", "2", hits=[hit])
        if ended.code in (0, None):
            raise FaultError(f"the run to be restored ended with {ended.code}")

    def _check_hits(self, ended: Ended) -> None:
        """Raise FaultError unless as many ranks were hit as go along with this end."""
        count, hits = len([*self.job.folder.glob("rank.*.hit")]), self.cell.hits
        if count < (1 if ended.code else len(hits)):  # the job may end before the second rank comes to its moment
            raise FaultError(f"{count} of {len(hits)} rank(s) were hit (exit code {ended.code})")

    def _check_it_may_go_on(self, ended: Ended) -> None:
        """Raise FaultError for a job that should have ended."""
        if not self.cell.goes_on:
            raise FaultError("the job went on")
        if "Traceback" in ended.log:
            raise FaultError("a traceback of a job that went on")

    def _check_it_says_why(self, ended: Ended) -> None:
        """Raise FaultError unless a job that ended has said why, in one line or by the traceback of an exception."""
        fault = self.cell.fault
        if fault == RAISE:
            if RAISED not in ended.log:
                raise FaultError("the exception's traceback is missing")
        elif self.cell.goes_on:
            lines = re.findall(r"^scaffe: .*$", ended.log, re.MULTILINE)
            if len(lines) != 1 or "Traceback" in ended.log:
                raise FaultError(f"{len(lines)} line(s) say why the job ended (exit code {ended.code})")
            if ended.code != STATE_LOST or list(self.job.folder.glob("snap_iter_*.solverstate")):
                raise FaultError(f"ended though it could go on (exit code {ended.code}): {lines[0]}")
        elif not says_why(ended.log) and not (fault == EXIT and "Traceback" not in ended.log):
            raise FaultError("no clear line says why the job ended")  # of EXIT MPICH says nothing

    def _resume(self) -> None:
        """Start a job that has ended again. Raise FaultError if it does not end as if nothing had disturbed it."""
        cell, folder = self.cell, self.job.folder
        states = [int(re.findall(r"\d+", path.name)[0]) for path in folder.glob("snap_iter_*.solverstate")]
        flags = ["--keep-snapshots", "2", "--snapshot", "auto", *WRITING[cell.writing]]
        ended = self.job.train(cell.workflow, cell.ranks, *flags)
        (folder / "resumed.log").write_text(ended.log)
        if ended.code != 0:
            raise FaultError(f"the job is not resumed (exit code {ended.code})")
        restored = re.findall(r"Restored iteration (\d+) from", ended.log)
        if restored != ([str(max(states))] if states else []) or "Passing over" in ended.log:
            raise FaultError(f"restored {restored or 'nothing'} where there are snapshots of {states}")
        self.parts = followed(self.parts, Part(max(states, default=0), cell.ranks))
        self._compare()

    def _compare(self) -> None:
        """Raise FaultError if the last snapshot is another one than it must be, or files are left beside it."""
        if self.job.last() != self.undisturbed.last(self.cell.workflow, self.parts):
            parts = ", ".join(f"{part.ranks} rank(s) from iteration {part.begin}" for part in self.parts)
            raise FaultError(f"the last snapshot has other bytes than that of an undisturbed run ({parts})")
        left = [path.name for path in self.job.folder.iterdir() if re.search(r"\.tmp$|\.lock|\.next$", path.name)]
        if left:
            raise FaultError(f"left behind: {', '.join(left)}")


class Matrix:
    """Runs cells below a folder."""

    def __init__(self, folder: Path, seconds: float):
        self.folder, self.seconds = folder, seconds
        self.undisturbed = Undisturbed(folder / "undisturbed", seconds)

    def run(self, cell: Cell) -> str:
        """Run a cell; return its outcome. Raise FaultError."""
        return Trial(cell, self.folder / str(cell), self.seconds, self.undisturbed).run()


def arguments() -> argparse.Namespace:
    """Return the command line's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cells", type=int, default=0, help="number of cells; 0: as many as there is time for")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the cells")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no cell later")
    parser.add_argument("--longest", type=float, default=60.0, help="seconds of a job, of a machine of its own")
    parser.add_argument("--cell", type=Cell.parse, action="append", help="run this cell")
    parser.add_argument("--only", default="", help="run cells that match this pattern alone")
    parser.add_argument("--keep", metavar="FOLDER", help="make this folder, and keep the files of failed cells in it")
    return parser.parse_args()


def run(a: argparse.Namespace, folder: Path) -> int:
    """Run the cells, and print how each and how many ended so; return the number of those that failed."""
    end = time.monotonic() + 60 * a.minutes
    cells = a.cell or [cell for cell in drawn(a.seed) if re.search(a.only, str(cell))]
    matrix, outcomes = Matrix(folder, a.longest), Counter[str]()
    for cell in cells[: a.cells or None]:
        if time.monotonic() > end:
            break
        begin, wrong = time.monotonic(), ""
        try:
            outcome = matrix.run(cell)
            shutil.rmtree(folder / str(cell))
        except FaultError as error:
            outcome, wrong = "failed", str(error)
        outcomes[f"{cell.loss}, {cell.fault}: {outcome}"] += 1
        print(f"{outcome:<8} {time.monotonic() - begin:5.1f} s  {cell}{wrong and f'  {wrong}'}", flush=True)
        if wrong:
            print(f"    to repeat: python jobs/faults.py --keep FOLDER --cell {cell}", flush=True)
    failed = sum(count for name, count in outcomes.items() if name.endswith("failed"))
    print(*(f"{count:5}  {name}" for name, count in sorted(outcomes.items())), sep="\n")
    print(f"{outcomes.total()} cells, {failed} failed")
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
