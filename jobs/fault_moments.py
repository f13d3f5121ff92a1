"""A rank of `scaffe train` that is hit by a fault at a given moment: the program that jobs/faults.py starts.

    python jobs/fault_moments.py kill:forward:2:0,kill:test:3:1 train --solver solver.prototxt ...

The first word names fault, moment, iteration and rank of each hit (- for none): the rank is hit at the first call of
the moment's function once the iteration has begun. The moment `call-N` is the main thread's N-th call of any Python
function since then, or for iteration -1 since the solver's parts were first built. Each rank writes its process id to
rank.R.pid. One that is hit writes the shared memory that it maps to rank.R.hit, and one that goes on to the end of the
job to rank.R.left. One that ends by itself writes its exit code to rank.R.code. On SIGUSR2 a rank writes its threads'
stacks to rank.R.stack.

On emulated nodes (FAULT_NET=1; jobs/lab/netlab.sh) a rank writes its output to rank.R.log, and `cut` cuts the link of
its node. A rank that knows that it is cut off writes the names of files that it changes to rank.R.changed.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import readers
from collectives import Communicator
from readers import files
from scaffe.cli import main
from scaffe.files import snapshot
from scaffe.monitor.record import BACKWARD, FORWARD, SNAPSHOT, TEST, RankRecord
from scaffe.parallel import cut_off, spares, world
from scaffe.parallel.aggregate import BlockingAggregate, StagedAggregate
from scaffe.parallel.propagate import Propagate, StagedPropagate
from scaffe.parallel.world import World, launcher_rank
from scaffe.training import display
from scaffe.training.bad_records import BadRecords
from scaffe.training.parts import Parts
from scaffe.training.snapshots import Snapshots
from scaffe.training.solver import Solver
from scaffe.training.state_transfer import StateTransfer

RAISED = "RuntimeError: a fault"


def _raise() -> NoReturn:
    raise RuntimeError("a fault")


def _cut() -> None:
    port = socket.gethostname().replace("nl", "port")
    subprocess.run(["ip", "-n", "nlswitch", "link", "set", port, "down"], check=True)


NET = "FAULT_NET"  # the variable that says that the nodes are emulated
KILL, STOP, EXIT, RAISE, CUT = "kill", "stop", "exit", "raise", "cut"
FAULTS: dict[str, Callable[[], Any]] = {
    KILL: lambda: os.kill(os.getpid(), signal.SIGKILL),
    STOP: lambda: signal.pthread_kill(threading.get_ident(), signal.SIGSTOP),  # all threads, and this one here and now
    EXIT: lambda: os._exit(1),
    RAISE: _raise,
    CUT: _cut,
}


class Hit(NamedTuple):
    """A fault of one rank."""

    fault: str
    moment: str
    iteration: int
    rank: int

    @classmethod
    def parse(cls, text: str) -> Hit:
        """Return the hit that is written like this."""
        fault, moment, iteration, rank = text.split(":")
        return cls(fault, moment, int(iteration), int(rank))


class Seam(NamedTuple):
    """A function that is called at a moment: of an object, by its name, with arguments that `is_meant` accepts."""

    owner: Any
    name: str
    is_meant: Callable[..., bool] = lambda *given, **named: True


def _operation(number: int) -> Seam:
    return Seam(RankRecord, "at", lambda record, operation, layer=-1: operation == number)


def _renaming(kind: str) -> Seam:
    return Seam(files.os, "replace", lambda old, new: f".{kind}" in os.fspath(new))


CALL = "call-"  # begins a moment that is no function's
START = "process", "mpi"  # a rank's process begins, and MPI does
SET_UP = "set-up", "watched-set-up"  # before the watchdog over stalls runs, and after
ROOTS = "weights-written", "state-written", "prune"  # steps of a snapshot, on the root alone
RESTORE = "restore"
FINISH = "summary", "last-records", "close", "free"  # after the last iteration
RECOVERY = "revoke", "shrink", "share", "rebuild", "replan"  # steps of a recovery from another rank's loss
MOMENTS: dict[str, list[Seam]] = {
    START[0]: [],  # before Python does: DYING
    START[1]: [Seam(world, "load_mpi")],
    SET_UP[0]: [Seam(Parts, "_make_workflows")],
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
    FINISH[0]: [Seam(display, "end")],
    FINISH[1]: [Seam(BadRecords, "finish")],
    FINISH[2]: [Seam(Solver, "close")],
    FINISH[3]: [Seam(Communicator, "free")],
    RECOVERY[0]: [Seam(World, "revoke")],
    RECOVERY[1]: [Seam(World, "shrink")],
    RECOVERY[2]: [Seam(StateTransfer, "share")],
    RECOVERY[3]: [Seam(Parts, "_make_workflows", lambda parts: bool(parts.job.world.lost))],
    RECOVERY[4]: [Seam(Parts, "plan", lambda parts: bool(parts.job.world.lost))],
}


def calls_of(moment: str) -> int:
    """Return N of the moment call-N, 0 for another moment."""
    return int(moment.removeprefix(CALL)) if moment.startswith(CALL) else 0


# Kills those ranks at the start of their processes that the first word names; the others become the program behind it.
DYING = """
case +$1+ in *+$PMIX_RANK+*) : >"rank.$PMIX_RANK.hit"; kill -9 $$ ;; esac
shift
exec "$@"
"""


def write_mapped(kind: str) -> None:
    """Write the names of the shared memory that this rank maps to rank.R.KIND."""
    mapped = re.findall(r" (/dev/shm/\S+)", Path("/proc/self/maps").read_text())
    Path(f"rank.{launcher_rank()}.{kind}").write_text("\n".join(sorted(set(mapped))))


def before(seam: Seam, act: Callable[[], None]) -> None:
    """Call `act` before the seam's function, where it is meant."""
    call = getattr(seam.owner, seam.name)

    @wraps(call)
    def changed(*given: Any, **named: Any) -> Any:
        if seam.is_meant(*given, **named):
            act()
        return call(*given, **named)

    setattr(seam.owner, seam.name, changed)


class Trap:
    """Hits this rank at a moment, once the iteration has begun."""

    def __init__(self, hit: Hit):
        self.fault, self.iteration = FAULTS[hit.fault], hit.iteration
        self.calls = calls_of(hit.moment)
        self.seams = [] if self.calls else MOMENTS[hit.moment]
        self._now = -1
        self._is_done = False

    def set(self) -> None:
        """Replace the functions of the moment's seams, and follow the iterations."""
        begin = RankRecord.begin

        def follow(record: RankRecord, iteration: int, net: int = 0) -> None:
            self._now = max(self._now, iteration)
            begin(record, iteration, net)
            if self.calls and self._now >= self.iteration >= 0:
                self._count()

        RankRecord.begin = follow  # type: ignore[method-assign]
        for seam in self.seams:
            before(seam, self._hit)
        if self.calls and self.iteration < 0:
            before(Seam(Parts, "build"), self._count)

    def _count(self) -> None:
        """Count the main thread's calls from now on, unless they are counted."""
        if sys.getprofile() is None and not self._is_done and threading.current_thread() is threading.main_thread():
            sys.setprofile(self._called)

    def _called(self, frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            self.calls -= 1
            if not self.calls:
                sys.setprofile(None)
                self._hit()

    def _hit(self) -> None:
        if self._now >= self.iteration and not self._is_done:
            self._is_done = True
            write_mapped("hit")
            self.fault()


def write_output(rank: int) -> None:
    """Write what this rank prints to rank.R.log: a launcher may be out of its reach."""
    descriptor = os.open(f"rank.{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.dup2(descriptor, sys.stdout.fileno())
    os.dup2(descriptor, sys.stderr.fileno())


def watch_files(rank: int) -> None:
    """Once this rank knows that it is cut off, write the names of files that it changes to rank.R.changed."""
    known: list[bool] = []
    find, here = cut_off.is_cut_off, os.getcwd()

    def found(*given: Any, **named: Any) -> bool:
        if cut := find(*given, **named):
            known.append(True)
        return cut

    def changes(event: str, given: tuple[Any, ...]) -> None:
        is_write = event in ("os.rename", "os.truncate") or (event == "open" and given[2] & (os.O_WRONLY | os.O_RDWR))
        if known and is_write and not isinstance(given[0], int):
            path = os.path.abspath(os.fsdecode(given[0]))
            if path.startswith(f"{here}/") and not path.startswith((f"{here}/rank.", f"{here}/tmp/", f"{here}/mpi/")):
                with open(f"rank.{rank}.changed", "a") as file:
                    file.write(f"{event} {path}\n")

    world.is_cut_off = spares.is_cut_off = found  # type: ignore[attr-defined]
    sys.addaudithook(changes)


def write_code(rank: int) -> None:
    """Write the exit code of this rank to rank.R.code where it ends by os._exit."""
    leave = os._exit

    def leaving(code: int) -> NoReturn:
        Path(f"rank.{rank}.code").write_text(str(code))
        leave(code)

    os._exit = leaving


def run(words: list[str]) -> int:
    """Set the trap of this rank, if it has one, and train."""
    gc.freeze()  # as scaffe itself does
    text, *command = words
    rank = launcher_rank()
    Path(f"rank.{rank}.pid").write_text(str(os.getpid()))
    write_code(rank)
    if NET in os.environ:
        write_output(rank)
        watch_files(rank)
    with open(f"rank.{rank}.stack", "w") as stack:
        faulthandler.register(signal.SIGUSR2, stack)
        before(Seam(World, "leave"), lambda: write_mapped("left"))
        for hit in map(Hit.parse, [] if text == "-" else text.split(",")):
            if hit.rank == rank:
                Trap(hit).set()
        code = main(command)
    Path(f"rank.{rank}.code").write_text(str(code))
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
