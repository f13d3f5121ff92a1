#!/usr/bin/env python3
"""Kill, stop and break processes of a training at every moment, and check that it goes on, or ends clearly.

    python jobs/faults.py --cells 40 --seed 1        # 40 cells of the matrix
    python jobs/faults.py --minutes 60               # as many as that time allows
    python jobs/faults.py --cell kill,forward,root,SC-B,3,2,waiting,shrink

A cell is a fault, a moment, the ranks that are hit (root, or 0+2), a workflow, the number of ranks, the iteration, how
snapshots are written, and how the job meets a loss. Its job has one of these outcomes, within --longest seconds:

- it goes on: its last snapshot has the bytes of an undisturbed run that was resumed there on the ranks that were left;
- it ends with a line that says why, and a second job resumes at the newest snapshot: the same, on all ranks.

It leaves no process, no shared memory and no temporary file. An exception of a rank always ends the job, with its
traceback. Prints a line for each cell, for one that failed the command to repeat it, and numbers of cells: by moment
and fault, by place, loss and fault, by outcome. Exit code 1 if any failed.

    python jobs/faults.py --where net --where pairs    # needs root: jobs/lab/netlab.sh

The ranks of `net` are on emulated nodes, one on each, those of `pairs` two on each. The fault `cut` cuts the link of a
rank's node. One side of it goes on, the other ends with exit code 76 and changes no file. One such run at a time.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from fault_cells import ENDS, LOSS, NET, NODE, PAIRS, WHERE, WRITING, Cell, drawn  # noqa: E402
from fault_jobs import FAULT_TOLERANT, Ended, Job, Killed, Make, Part, Parts, Undisturbed, followed  # noqa: E402
from fault_moments import CUT, EXIT, FINISH, KILL, RAISE, RAISED, RECOVERY, RESTORE, STOP  # noqa: E402
from fault_net import NetJob, PairsJob  # noqa: E402

JOBS = {NODE: Job, NET: NetJob, PAIRS: PairsJob}
STALL = 3  # seconds without progress after which a job whose rank is stopped ends
WENT_ON, RESUMED, UNHIT, FAILED = "went on", "resumed", "not hit", "failed"  # outcomes
STATE_LOST = 76  # exit code of ranks that can't go on: the solver's state is lost, and there is no snapshot


class FaultError(Exception):
    """What went wrong in a cell."""


def says_why(log: str) -> bool:
    """Return whether a log says in a line that a process was lost, or that a rank is missing."""
    if "Traceback" in log:
        return False
    hung = r"scaffe: rank \d+ (has not moved|on \S+ is stopped|\(process \d+\) on \S+ has ended, which)"
    early = r"scaffe: .* has ended before all ranks had started"
    return bool(re.search(rf"signal \d|SIGNAL|[Ee]xit code|EXIT CODE|Socket closed|{hung}|{early}", log))


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

    def __init__(self, cell: Cell, job: Job, undisturbed: Undisturbed, killed: Killed):
        self.cell, self.job, self.undisturbed, self.killed = cell, job, undisturbed, killed

    def run(self) -> str:
        """Run the job, and another one that resumes it if it ends; return the outcome. Raise FaultError."""
        ended = self._train()
        (self.job.folder / "ended.log").write_text(ended.log)
        if ended.code is None:
            raise FaultError("the job hangs")
        cell = self.cell
        if cell.fault == CUT:
            ended = self._sides(ended)
        elif isinstance(self.job, NetJob) and self.job.is_launcher_killed:
            raise FaultError("all ranks have ended, and the launcher hangs")
        elif isinstance(self.job, NetJob) and cell.fault == STOP:
            ended = self._without_woken(ended)
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
            return WENT_ON if self.hit else UNHIT
        self._resume()
        return RESUMED

    def _train(self) -> Ended:
        """Start the ranks, with their faults, and wait for the end."""
        cell = self.cell
        flags = ["--keep-snapshots", "2", *WRITING[cell.writing], *LOSS[cell.loss]]
        if cell.fault == STOP or (cell.fault == CUT and cell.loss == ENDS):
            flags += ["--stall-seconds", str(STALL), "--stall", "abort" if cell.loss == ENDS else "shrink"]
        if cell.fault == EXIT and cell.loss != ENDS:
            flags += ["--stall-seconds", str(STALL)]  # Open MPI reports no such process: jobs/lab/mpi_exit.py
        if cell.moment == "reading":
            flags += ["--prefetch", "1"]  # else the batch may be one that no iteration needs
        if cell.moment == RESTORE:
            self.killed.copy(cell.workflow, cell.ranks, self.job.folder)
            flags += ["--snapshot", "auto"]
        launch = [] if cell.loss == ENDS else FAULT_TOLERANT
        return self.job.train(cell.workflow, cell.launched, *flags, hits=cell.hits, launch=launch)

    def _without_woken(self, ended: Ended) -> Ended:
        """Return how the ranks ended that were not stopped: one that is continued at the end may end with 76."""
        codes, left = self.job.codes(), self.cell.apart[-1].difference(hit.rank for hit in self.cell.hits)
        return Ended(0, self.job.logs(left)) if {codes.get(rank) for rank in left} == {0} else ended

    def _sides(self, ended: Ended) -> Ended:
        """Return how that side of a cut link ended that went on, or else the larger one. Raise FaultError.

        The exit code of a job whose launcher was killed is that of its ranks.
        """
        cell, codes = self.cell, self.job.codes()
        if changed := self.job.changed():
            raise FaultError(f"ranks that are cut off change files: {changed}")
        won = [side for side in cell.apart if any(codes.get(rank) == 0 for rank in side)]
        if len(won) > 1 and cell.moment not in FINISH:
            raise FaultError(f"several sides went on: {codes}")
        lost = [side for side in cell.apart if side not in won]
        for side in lost if cell.goes_on and won else []:
            lines = re.findall(r"^scaffe: .*$", self.job.logs(side), re.MULTILINE)
            left = side.difference(hit.rank for hit in cell.hits if hit.fault == KILL)
            if {codes.get(rank) for rank in left} != {STATE_LOST} or len(lines) != 1:
                raise FaultError(f"the side that was cut off ended with {codes} and {len(lines)} line(s)")
        if won:
            return Ended(0 if all(codes.get(rank, 0) == 0 for rank in won[0]) else 1, self.job.logs(won[0]))
        code = max((codes[rank] for rank in cell.apart[-1] if rank in codes), default=ended.code or 1)
        return Ended(code, self.job.logs(cell.apart[-1] if cell.goes_on else ()))

    def _check_hits(self, ended: Ended) -> None:
        """Raise FaultError unless as many ranks were hit as go along with this end."""
        count, hits = self.hit, self.cell.hits
        if count < self.cell.least_hits(bool(ended.code)):
            raise FaultError(f"{count} of {len(hits)} rank(s) were hit (exit code {ended.code})")

    @property
    def hit(self) -> int:
        """The number of ranks that were hit."""
        return len([*self.job.folder.glob("rank.*.hit")])

    def _check_it_may_go_on(self, ended: Ended) -> None:
        """Raise FaultError for a job that should have ended."""
        if self.hit and not self.cell.goes_on:
            raise FaultError("the job went on")
        if "Traceback" in ended.log:
            raise FaultError("a traceback of a job that went on")

    def _check_it_says_why(self, ended: Ended) -> None:
        """Raise FaultError unless a job that ended has said why, in one line or by the traceback of an exception."""
        cell, fault = self.cell, self.cell.fault
        if fault == RAISE:
            if RAISED not in ended.log:
                raise FaultError("the exception's traceback is missing")
        elif cell.goes_on:
            lines = re.findall(r"^scaffe: (?!rank \d+ is given up).*$", ended.log, re.MULTILINE)
            if len(lines) != 1 or "Traceback" in ended.log:
                raise FaultError(f"{len(lines)} line(s) say why the job ended (exit code {ended.code})")
            if self._may_be_cut_off(lines[0]):
                return
            if ended.code != STATE_LOST or list(self.job.folder.glob("snap_iter_*.solverstate")):
                raise FaultError(f"ended though it could go on (exit code {ended.code}): {lines[0]}")
        elif not says_why(ended.log) and not (self._may_be_silent and "Traceback" not in ended.log):
            raise FaultError("no clear line says why the job ended")

    @property
    def _may_be_silent(self) -> bool:
        """Return whether a launcher may say nothing of an exit code.

        MPICH does, and Open MPI after another rank's loss, and once half of the processes have ended so.
        """
        cell = self.cell
        no_word = cell.loss == ENDS or cell.moment in RECOVERY or 2 * len(cell.hits) >= cell.launched
        return cell.fault == EXIT and no_word

    def _may_be_cut_off(self, line: str) -> bool:
        """Return whether this line ends a job of which no side, with ranks on other nodes, has most of the ranks."""
        cell = self.cell
        left = cell.apart[-1].intersection(range(cell.ranks)).difference(hit.rank for hit in cell.hits)
        return cell.where != NODE and 2 * len(left) <= cell.ranks and "others may have gone on without" in line

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

    def __init__(self, folder: Path, seconds: float, jobs: Mapping[str, Make] = JOBS):
        self.folder, self.seconds, self.jobs = folder, seconds, jobs
        self.killed = {where: Killed(folder / f"killed-{where}", seconds, jobs[where]) for where in jobs}
        self.undisturbed = {where: Undisturbed(folder / f"undisturbed-{where}", seconds, jobs[where]) for where in jobs}

    def run(self, cell: Cell) -> str:
        """Run a cell; return its outcome. Raise FaultError."""
        undisturbed, killed = self.undisturbed[cell.where], self.killed[cell.where]
        job = self.jobs[cell.where](self.folder / str(cell), self.seconds)
        return Trial(cell, job, undisturbed, killed).run()


class Counts:
    """Numbers of cells: by outcome, by how the job meets a loss, and by moment and fault.

    Each line is a number, a tab and a name, so that those of several runs can be added up.
    """

    def __init__(self) -> None:
        self.outcomes, self.losses, self.moments = Counter[str](), Counter[str](), Counter[str]()

    def add(self, cell: Cell, outcome: str) -> None:
        """Count a cell."""
        self.outcomes[outcome] += 1
        self.losses[f"{cell.where}, {cell.loss}, {cell.fault}: {outcome}"] += 1
        self.moments[f"{cell.moment}, {cell.fault}: {outcome}"] += 1

    def lines(self) -> list[str]:
        """Return a line for each number, those of all cells last."""
        tables = self.moments, self.losses, self.outcomes
        found = [f"{count}\t{name}" for table in tables for name, count in sorted(table.items())]
        return [*found, f"{self.outcomes.total()}\tcells"]


def arguments() -> argparse.Namespace:
    """Return the command line's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cells", type=int, default=0, help="number of cells; 0: as many as there is time for")
    parser.add_argument("--where", choices=WHERE, action="append", help="the nodes' places (default: node)")
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
    cells = a.cell or [cell for cell in drawn(a.seed, *(a.where or ())) if re.search(a.only, str(cell))]
    matrix, counts = Matrix(folder, a.longest), Counts()
    for cell in cells[: a.cells or None]:
        if time.monotonic() > end:
            break
        begin, wrong = time.monotonic(), ""
        try:
            outcome = matrix.run(cell)
            shutil.rmtree(folder / str(cell), ignore_errors=True)
        except FaultError as error:
            outcome, wrong = FAILED, str(error)
        counts.add(cell, outcome)
        print(f"{outcome:<8} {time.monotonic() - begin:5.1f} s  {cell}{wrong and f'  {wrong}'}", flush=True)
        if wrong:
            print(f"    to repeat: python jobs/faults.py --keep FOLDER --cell {cell}", flush=True)
    print(*counts.lines(), sep="\n")
    return counts.outcomes[FAILED]


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
