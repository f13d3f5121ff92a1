"""Tuning of this machine: measure what is best at each size, and write the table that "auto" reads.

    mpirun -n P python -m collectives.tune --out table.json [--ops reduce,bcast] [-m MIN:MAX] [--seconds N] [--device]
    python -m collectives.tune --from-model ethernet infiniband --out table.json

An existing table keeps its rows for other shapes of the job and other operations. All communicators follow the table
that COLLECTIVES_TABLE names; one follows Communicator(table=collectives.tuning.load(FILE)).
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from collectives import tuning
from collectives.arguments import attempt, on_device
from collectives.command import run
from collectives.errors import ArgumentError, CollectiveError
from collectives.execution.device import cuda
from collectives.execution.device.choice import NCCL
from collectives.model.predicting import parse_bytes
from collectives.schedules.algorithms import every_name
from collectives.tuning import choosing
from collectives.tuning.choosing import LIBRARY, Candidate, Seconds
from collectives.tuning.modelled import model_rows
from collectives.tuning.table import HOST, Row, Table
from collectives.verbs import SCHEDULED, arrays_of

if TYPE_CHECKING:
    from collectives.communicator import Communicator

OPS = tuple(SCHEDULED)
MEMORY = {"shared": (True,), "foreign": (False,), "both": (True, False), "device": (True,)}
BUSY = 0.5  # runnable processes per core, before ours begin, above which the machine counts as busy
SHORT = 1 << 16  # bytes
TIMING, MOST_CALLS = 20e-3, 50  # the least seconds of one timing, and its most calls


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m collectives.tune", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--ops", type=_names, default=list(OPS), metavar="A,B", help=f"operations, of {', '.join(OPS)} (all)"
    )
    made.add_argument(
        "-m", "--message-size", type=_range, default="1K:64M", metavar="MIN:MAX", help="bytes of a message (1K:64M)"
    )
    made.add_argument("--step", type=int, default=4, choices=(2, 4, 8), help="factor between sizes (4)")
    made.add_argument(
        "--algorithms",
        type=_names,
        metavar="A,B",
        help=f"algorithms to time, of {every_name()} (those that suit the job)",
    )
    made.add_argument("--chunk-bytes", type=_chunks, metavar="A,B", help="bytes of a chunk (the algorithms' own)")
    made.add_argument("--seconds", type=float, default=60.0, help="approximate time limit (60)")
    made.add_argument("--out", metavar="FILE", help="the table to write or to extend; nothing is written without it")
    memory = made.add_mutually_exclusive_group()
    for name, text in (
        ("shared", "buffers of Communicator.empty"),
        ("foreign", "other buffers"),
        ("both", "both kinds (default)"),
    ):
        memory.add_argument(f"--{name}", dest="memory", action="store_const", const=name, help=text)
    memory.add_argument(
        "-d", "--device", dest="memory", action="store_const", const="device", help="arrays on GPUs, with NCCL's too"
    )
    made.add_argument(
        "--from-model", nargs="+", metavar="CLUSTER", help="predict by the model instead of measuring; needs no MPI"
    )
    made.set_defaults(memory="both")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, or ask the model, and write the table; return 2 for a user's error."""
    options = parser().parse_args(argv)
    if options.from_model:
        return _from_model(options)
    from mpi4py import MPI

    from collectives.communicator import Communicator

    world = Communicator(MPI.COMM_WORLD, table=Table([], "no table"))
    try:
        _check(world, options)
        if options.memory == "device":
            world.agree({}, attempt(lambda: cuda.take(world.node.rank))[1])
        measured = TuningRun(world, options).run()
        _on_root(world, partial(_write, options.out, measured))
    except CollectiveError as error:
        if world.rank == 0:
            print(f"collectives.tune: {error}", file=sys.stderr)
        return 2
    finally:
        world.free()
    return 0


def _from_model(options: argparse.Namespace) -> int:
    """Write the model's table."""
    try:
        if not options.out:
            raise ArgumentError("--from-model needs --out FILE")
        tuning.check_writable(options.out)
        Table(model_rows(options.from_model), options.out).save(options.out)
    except CollectiveError as error:
        print(f"collectives.tune: {error}", file=sys.stderr)
        return 2
    return 0


def _check(world: Communicator, options: argparse.Namespace) -> None:
    """Raise ArgumentError, on all ranks and before measuring, for options that can't be measured or written."""
    unknown = [op for op in options.ops if op not in OPS]
    if unknown:
        raise ArgumentError(f"--ops: unknown operation '{unknown[0]}'; known are {', '.join(OPS)}")
    if options.seconds <= 0:
        raise ArgumentError(f"--seconds is {options.seconds:g}; it must be more than 0")
    if world.size < 2:
        raise ArgumentError(
            "there is nothing to tune with one rank; start it as mpirun -n P python -m collectives.tune"
        )
    if options.out:
        _on_root(world, partial(tuning.check_writable, options.out))


def _on_root(world: Communicator, action: partial[None]) -> None:
    """Do `action` on rank 0; raise its error on all ranks."""
    problem = ""
    if world.rank == 0:
        try:
            action()
        except CollectiveError as error:
            problem = str(error)
    if problem := world.comm.bcast(problem):
        raise ArgumentError(problem)


def _write(out: str | None, rows: Sequence[Row]) -> None:
    """Write the rows, merged into an existing table."""
    if out:
        tuning.present(out).merged(rows).save(out)
        print(f"\n{out} is written; set COLLECTIVES_TABLE={out} to use it")


class TuningRun:
    """One run over operations, kinds of memory and sizes, which share the time limit."""

    def __init__(self, world: Communicator, options: argparse.Namespace):
        self.world, self.options = world, options
        least, most = options.message_size
        self.sizes = sizes(least, most, options.step)
        self.say: Callable[[str], None] = partial(print, flush=True) if world.rank == 0 else lambda _: None
        self.end = time.monotonic() + options.seconds
        self.plans = world.device_plans if options.memory == "device" else None
        self.work = sum(map(_weight, self.sizes)) * len(options.ops) * len(MEMORY[options.memory])

    def run(self) -> list[Row]:
        """Measure everything, printing each choice; return the table's rows."""
        source, found = self.world.comm.bcast(_source()), []
        self.say(f"{self.world.shape}; {source}")
        others = os.getloadavg()[0]
        if others > BUSY * (os.cpu_count() or 1):
            self.say(f"warning: this machine is busy (load {others:.1f}); the table will not suit an idle one")
        self.say(f"{'op':<10}{'memory':<9}{'bytes':>10}{'mpi, us':>11}{'best, us':>11}{'/ mpi':>7}  chosen")
        for shared in MEMORY[self.options.memory]:
            send, recv = (self._array(shared) for _ in range(2))
            memory = HOST if self.plans is None else self.plans.memory
            for op in self.options.ops:
                timed = self._sizes(op, shared, send, recv)
                found += choosing.rows(op, self.world.shape, shared, timed, source, memory)
        return found

    def _array(self, shared: bool) -> Any:
        """Return an array of the most bytes in the memory to measure. Collective."""
        count = self.sizes[-1] // 4
        if self.plans is not None:
            return self.world.empty(count, device="cuda")
        return self.world.empty(count) if shared else np.zeros(count, np.float32)

    def _names(self, op: str, shared: bool) -> list[str]:
        """Return the algorithms to time."""
        shape, plans = self.world.shape, self.plans
        if self.options.algorithms:
            return list(self.options.algorithms)
        if plans is None:
            return choosing.algorithms(op, shape, shared or self.world.has_peers)
        names = choosing.algorithms(op, shape, plans.reaches(shape.nodes))
        return names if plans.why_no_nccl else [NCCL, *names]

    def _sizes(self, op: str, shared: bool, send: np.ndarray, recv: np.ndarray) -> dict[int, Seconds]:
        """Return the seconds of the good candidates at each size; those good at the size before are timed first."""
        names = self._names(op, shared)
        found: dict[int, Seconds] = {}
        seconds: Seconds = {}
        choice = LIBRARY
        for nbytes in self.sizes:
            tried = choosing.candidates([name for name in names if name != "mpi"], self.options.chunk_bytes, nbytes)
            tried.sort(key=lambda candidate: seconds.get(candidate, float("inf")))
            clock = Clock(self.world, op, send[: nbytes // 4], recv[: nbytes // 4])
            seconds = found[nbytes] = choosing.search(tried, clock, self._left(_weight(nbytes)))
            choice = choosing.decide(seconds, nbytes, choice)
            self._report(op, shared, nbytes, seconds, choice)
            self.world.forget()
        return found

    def _left(self, weight: float) -> partial[float]:
        """Return a function that returns how much is left of a size's share of the time."""
        now = time.monotonic()
        share = max(0.0, self.end - now) * weight / self.work
        self.work -= weight
        return partial(self._until, now + share)

    def _until(self, end: float) -> float:
        """Return the seconds until `end`, rank 0's on all ranks."""
        return float(self.world.comm.bcast(end - time.monotonic()))

    def _report(self, op: str, shared: bool, nbytes: int, seconds: Seconds, choice: Candidate) -> None:
        """Print a size's line."""
        memory = "device" if self.plans else "shared" if shared else "foreign"
        library, best = seconds[LIBRARY], seconds[choice]
        numbers = f"{1e6 * library:11.1f}{1e6 * best:11.1f}{best / library:7.2f}"
        self.say(f"{op:<10}{memory:<9}{nbytes:>10}{numbers}  {choice}")


class Clock:
    """The seconds of one call by a candidate on the slowest rank; the same on all ranks."""

    def __init__(self, world: Communicator, op: str, send: np.ndarray, recv: np.ndarray):
        self.world, self.op = world, op
        self.send, self.recv = arrays_of(SCHEDULED[op], world.rank, world.size, 0, send, recv)
        self._calls: dict[Candidate, int] = {}

    def __call__(self, candidate: Candidate) -> float:
        """Time a candidate; its first calls make the plan and set the number of calls."""
        if candidate in self._calls:
            return self._time(candidate, self._calls[candidate])
        first = self._time(candidate, 1)  # the plan is made
        first = min(first, self._time(candidate, 1))
        self._calls[candidate] = max(1, min(MOST_CALLS, int(TIMING / max(first, 1e-9))))
        return first if self._calls[candidate] == 1 else self._time(candidate, self._calls[candidate])

    def _time(self, candidate: Candidate, calls: int) -> float:
        """Return the least of `calls` calls: other processes can only lengthen one."""
        comm, spent = self.world.comm, np.empty(calls)
        for i in range(calls):
            comm.Barrier()
            start = time.perf_counter()
            self.world.plan(
                self.op, self.send, self.recv, algorithm=candidate.algorithm, chunk_bytes=candidate.chunk_bytes
            ).run()
            wait_for_device(self.world, self.send)
            spent[i] = time.perf_counter() - start
        return float(np.min(np.max(comm.allgather(spent), axis=0)))


def wait_for_device(world: Communicator, array: Any) -> None:
    """Wait for the work on the caller's stream, where an array is on a device."""
    if on_device(array):
        device = world.device_plans.device
        done = device.event()
        done.record(device.current())
        done.Wait()


def _weight(nbytes: int) -> float:
    """Return a size's share of the time: long messages take longer, but need fewer calls."""
    return 1 + sqrt(nbytes / SHORT)


def sizes(least: int, most: int, step: int) -> list[int]:
    """Return the sizes from `least` to `most` bytes, each `step` times the one before."""
    found = [least]
    while found[-1] * step <= most:
        found.append(found[-1] * step)
    return found


def _source() -> str:
    """Return what a measurement is valid for: the machine, the MPI library and its version, the date."""
    from mpi4py import MPI

    vendor, version = MPI.get_vendor()
    library = f"{vendor} {'.'.join(map(str, version))}"
    machine = f"{platform.node()} ({os.cpu_count()} processors, {platform.machine()})"
    return f"measured on {machine} with {library}, {time.strftime('%Y-%m-%d')}"


def _names(text: str) -> list[str]:
    """Split a list at its commas."""
    return [name for name in text.split(",") if name]


def _chunks(text: str) -> list[int]:
    """Read a list of chunks."""
    found = [parse_bytes(part) for part in text.split(",")]
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"'{text}': a chunk has at least 1 byte")
    return found


def _range(text: str) -> tuple[int, int]:
    """Read MIN:MAX."""
    low, colon, high = text.partition(":")
    least, most = parse_bytes(low), parse_bytes(high if colon else low)
    if not 4 <= least <= most:
        raise argparse.ArgumentTypeError(f"'{text}': expected MIN:MAX in bytes, from 4 on, as in 1K:64M")
    return least, most


if __name__ == "__main__":
    sys.exit(run(main))
