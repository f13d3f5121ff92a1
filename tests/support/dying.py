"""A training some of whose ranks are killed, or raise an error, at given moments.

    python dying.py "2 backward 5; 1 Carried.share 1 raise" train --solver solver.prototxt --on-rank-loss shrink

A moment is a rank as the launcher numbers them, an operation and its iteration, or a function and which of its calls.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import wraps
from typing import Any

from scaffe import cli
from scaffe.monitor.record import BACKWARD, FORWARD, LOSS, SNAPSHOT, TEST, UPDATE, RankRecord
from scaffe.parallel.world import World, launcher_rank
from scaffe.training import display, snapshots
from scaffe.training.carried import Carried
from scaffe.training.losses import Losses
from scaffe.training.snapshot_writer import SnapshotWriter
from scaffe.training.solver import Solver

OPERATIONS = {
    "forward": FORWARD, "backward": BACKWARD, "loss": LOSS, "update": UPDATE, "test": TEST, "snapshot": SNAPSHOT,
}  # fmt: skip
OWNERS = {one.__name__: one for one in (Carried, Losses, SnapshotWriter, Solver, World)}
OWNERS |= {"display": display, "weights": snapshots.weights}


def hit(how: str) -> None:
    """Kill this process, raise an error, or request a snapshot from all ranks."""
    if how == "raise":
        raise ZeroDivisionError("boom")
    os.kill(os.getpid(), signal.SIGHUP if how == "hup" else signal.SIGKILL)


def set_trap(what: str, count: int, how: str) -> None:
    """Hit this rank in an operation of iteration `count`, or in the call of a function of that number."""
    owner, _, name = what.rpartition(".")
    if not owner:
        return trap_operation(OPERATIONS[what], count, how)
    function, calls = getattr(OWNERS[owner], name), [0]

    @wraps(function)
    def trapped(*given: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == count:
            hit(how)
        return function(*given, **named)

    setattr(OWNERS[owner], name, trapped)


def trap_operation(operation: int, iteration: int, how: str) -> None:
    """Hit this rank in an operation of an iteration, in the second layer at the latest."""
    at, were = RankRecord.at, []

    def trapped(self: RankRecord, what: int, layer: int = -1) -> None:
        at(self, what, layer)
        if self._iteration == iteration and what == operation and layer <= 1 and not were:
            were.append(iteration)
            hit(how)

    RankRecord.at = trapped  # type: ignore[method-assign]


def main(moments: str, *command: str) -> int:
    """Set this rank's traps, and run scaffe."""
    for moment in filter(None, moments.split(";")):
        rank, what, count, *how = moment.split()
        if rank == str(launcher_rank()):
            set_trap(what, int(count), *(how or ["kill"]))
    return cli.main(command)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
