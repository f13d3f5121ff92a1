"""A rank of `scaffe train` that is hit by a fault at a given moment: the program that jobs/faults.py starts.

    python jobs/fault_moments.py FAULT MOMENT ITERATION RANKS train --solver solver.prototxt ...

The ranks RANKS (0,2; - for none) are hit at the first call of the moment's function once ITERATION has begun. Each rank
writes its process id to rank.R.pid, and one that is hit writes the shared memory that it maps to rank.R.shm.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import readers
from readers import files
from scaffe.cli import main
from scaffe.files import snapshot
from scaffe.monitor.record import BACKWARD, FORWARD, SNAPSHOT, TEST, RankRecord
from scaffe.parallel.aggregate import BlockingAggregate, StagedAggregate
from scaffe.parallel.propagate import Propagate, StagedPropagate
from scaffe.parallel.world import launcher_rank
from scaffe.training import display
from scaffe.training.built_solver import BuiltSolver
from scaffe.training.snapshots import Snapshots

KILL, STOP, EXIT = "kill", "stop", "exit"
FAULTS = {
    KILL: lambda: os.kill(os.getpid(), signal.SIGKILL),
    STOP: lambda: signal.pthread_kill(threading.get_ident(), signal.SIGSTOP),  # all threads, and this one here and now
    EXIT: lambda: os._exit(1),
}


class Seam(NamedTuple):
    """A function that is called at a moment: of an object, by its name, with arguments that `is_meant` accepts."""

    owner: Any
    name: str
    is_meant: Callable[..., bool] = lambda *given: True


def _operation(number: int) -> Seam:
    return Seam(RankRecord, "at", lambda record, operation, layer=-1: operation == number)


def _renaming(kind: str) -> Seam:
    return Seam(files.os, "replace", lambda old, new: f".{kind}" in os.fspath(new))


SET_UP = "set-up", "watched-set-up"  # before the watchdog over stalls runs, and after
ROOTS = "weights-written", "state-written", "prune"  # steps of a snapshot, on the root alone
RESTORE = "restore"
MOMENTS: dict[str, list[Seam]] = {
    SET_UP[0]: [Seam(BuiltSolver, "_make_workflows")],
    SET_UP[1]: [Seam(display, "start")],
    "reading": [Seam(readers.BatchReader, "fill")],
    "forward": [_operation(FORWARD)],
    "broadcast": [
        Seam(Propagate, "_bcast"),
        Seam(StagedPropagate, "progress", lambda propagate: not propagate.staged.done()),
    ],
    "backward": [_operation(BACKWARD)],
    "reduce": [
        Seam(BlockingAggregate, "_sum"),
        Seam(StagedAggregate, "progress", lambda aggregate: not aggregate.staged.done()),
    ],
    "update": [Seam(Propagate, "updated"), Seam(StagedPropagate, "updated")],
    "test": [_operation(TEST)],
    "snapshot": [_operation(SNAPSHOT)],
    ROOTS[0]: [_renaming("caffemodel")],
    ROOTS[1]: [_renaming("solverstate")],
    ROOTS[2]: [Seam(snapshot, "prune")],
    RESTORE: [Seam(Snapshots, "restore_positions")],
}


class Trap:
    """Hits this rank at a moment, once the iteration has begun."""

    def __init__(self, fault: str, moment: str, iteration: int):
        self.fault, self.seams, self.iteration = FAULTS[fault], MOMENTS[moment], iteration
        self._now = -1

    def set(self) -> None:
        """Replace the functions of the moment's seams, and follow the iterations."""
        begin = RankRecord.begin

        def follow(record: RankRecord, iteration: int, net: int = 0) -> None:
            self._now = max(self._now, iteration)
            begin(record, iteration, net)

        RankRecord.begin = follow  # type: ignore[method-assign]
        for seam in self.seams:
            setattr(seam.owner, seam.name, self._before(seam, getattr(seam.owner, seam.name)))

    def _before(self, seam: Seam, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def trapped(*given: Any, **named: Any) -> Any:
            if self._now >= self.iteration and seam.is_meant(*given, **named):
                self._hit()
            return call(*given, **named)

        return trapped

    def _hit(self) -> None:
        mapped = re.findall(r" (/dev/shm/\S+)", Path("/proc/self/maps").read_text())
        Path(f"rank.{launcher_rank()}.shm").write_text("\n".join(sorted(set(mapped))))
        self.fault()


def run(words: list[str]) -> int:
    """Set the trap of this rank, if it has one, and train."""
    fault, moment, iteration, ranks, *command = words
    rank = str(launcher_rank())
    Path(f"rank.{rank}.pid").write_text(str(os.getpid()))
    if rank in ranks.split(","):
        Trap(fault, moment, int(iteration)).set()
    return main(command)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
