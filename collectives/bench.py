"""Latency of collectives, with the options and the output of the OSU microbenchmarks.

    mpirun -n P python -m collectives.bench reduce [-m MIN:MAX] [-i N] [-x N] [-f] [-c] [--algorithm mpi,auto,cb-8]

reduce, bcast and allreduce wait for each collective; ireduce, ibcast and iallreduce compute meanwhile and say how much
of the communication that hid, by OSU's formula. The first algorithm fills OSU's own columns; each further one adds
its average and its ratio to the MPI library's, taken in turn in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from mpi4py import MPI

from collectives.communicator import Communicator
from collectives.errors import CollectiveError
from collectives.plans import Plan

NAMES = {"reduce": "Reduce", "bcast": "Broadcast", "allreduce": "Allreduce"}
WIDTH, PRECISION = 18, 2
LARGE, MOST_BYTES = 8192, 1 << 29  # bytes: from where on fewer iterations do, and how many a run may use
TESTS = 100  # calls that let a non-blocking collective go on during the computation


@dataclass
class Row:
    """A line of the table: seconds are microseconds here, as OSU prints them."""

    op: str
    algorithm: str
    ranks: int
    bytes: int
    avg_us: float
    min_us: float
    max_us: float
    iterations: int
    ratio_to_mpi: float | None = None
    bound_us: float | None = None
    overlap: float | None = None
    overall_us: float | None = None
    compute_us: float | None = None


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m collectives.bench", description=__doc__.splitlines()[0])
    made.add_argument("op", choices=[*NAMES, *(f"i{name}" for name in NAMES)])
    made.add_argument("-m", "--message-size", default="4:1048576", metavar="[MIN:]MAX", help="bytes")
    made.add_argument("-i", "--iterations", type=int, default=0, help="per size; 1000, and 100 from 8 KiB on")
    made.add_argument("-x", "--warmup", type=int, default=-1, help="iterations that don't count; 200, and 10")
    made.add_argument("-f", "--full", action="store_true", help="print minimum, maximum and iterations too")
    made.add_argument("-c", "--validation", action="store_true", help="check every size, not only the first")
    made.add_argument("-d", "--accelerator", choices=("cpu", "cuda"), default="cpu", help="where the buffers are")
    made.add_argument("-M", "--mem-limit", type=int, default=MOST_BYTES, help="bytes a size may be")
    made.add_argument("-l", "--list", action="store_true", help="print the sizes and end")
    made.add_argument("--algorithm", default="auto", metavar="A,B", help="auto, mpi, slices, chain, cb-8, ...")
    made.add_argument("--chunk-bytes", type=int, default=0)
    made.add_argument("--foreign", action="store_true", help="plain buffers, not those that the ranks of a node share")
    made.add_argument("--json", metavar="FILE")
    made.add_argument("--plot", metavar="FILE.png")
    return made


def sizes(text: str, limit: int) -> list[int]:
    """Return the powers of two from MIN to MAX. Raise ValueError for what is no such range."""
    low, _, high = text.rpartition(":")
    least, most = int(low or 4), min(int(high), limit)
    if least < 4 or most < least:
        raise ValueError(f"message sizes '{text}': expected [MIN:]MAX in bytes, from 4 on")
    found, size = [], least
    while size <= most:
        found.append(size)
        size *= 2
    return found


class Case:
    """One collective, size and algorithm, with its buffers."""

    def __init__(self, comm: Communicator, what: str, nbytes: int, algorithm: str, arguments: argparse.Namespace):
        self.comm, self.what, self.count, self.algorithm = comm, what, nbytes // 4, algorithm
        make = np.zeros if arguments.foreign else comm.empty
        self.send, self.recv = make(self.count, np.float32), make(self.count, np.float32)
        self.how = {"algorithm": algorithm, "chunk_bytes": arguments.chunk_bytes}

    def plan(self) -> Plan:
        """Return the plan; a broadcast has one buffer."""
        return self.comm.plan(self.what, self.send, None if self.what == "bcast" else self.recv, **self.how)

    def run(self) -> None:
        self.plan().run()

    def validate(self) -> None:
        """Raise CollectiveError where the result is wrong."""
        rank, size = self.comm.rank, self.comm.size
        self.send[...] = rank + 1
        self.recv[...] = 0
        self.run()
        if self.what == "bcast":
            fine = (self.send == 1).all()
        else:
            fine = rank not in ((0,) if self.what == "reduce" else range(size)) or (
                (self.recv == size * (size + 1) / 2).all()
            )
        if not self.comm.comm.allreduce(bool(fine), MPI.LAND):
            raise CollectiveError(f"{self.what} of {4 * self.count} bytes by '{self.algorithm}' gave wrong numbers")


def measure(cases: Sequence[Case], warmup: int, iterations: int) -> list[list[float]]:
    """Return for each case the average over ranks, least and most of its seconds per call, taken in turn."""
    comm = cases[0].comm.comm
    spent = np.zeros(len(cases))
    for i in range(warmup + iterations):
        for k, case in enumerate(cases):
            comm.Barrier()
            start = time.perf_counter()
            case.run()
            if i >= warmup:
                spent[k] += time.perf_counter() - start
    return _over_ranks(comm, spent / iterations)


def _over_ranks(comm: MPI.Comm, values: np.ndarray) -> list[list[float]]:
    every = np.array(comm.allgather(values))
    return np.stack([every.mean(0), every.min(0), every.max(0)], 1).tolist()


def overlap(case: Case, pure: float, warmup: int, iterations: int) -> tuple[float, float, float]:
    """Return overall and computing seconds, and the share of the pure communication that was hidden, in percent."""
    comm, work = case.comm.comm, _Work(pure)
    overall = 0.0
    for i in range(warmup + iterations):
        comm.Barrier()
        start = time.perf_counter()
        plan = case.plan()
        plan.start()
        work.run(plan.advance)
        plan.finish()
        overall += (time.perf_counter() - start) * (i >= warmup)
    whole, computed = (_over_ranks(comm, np.array([x]))[0][0] for x in (overall / iterations, work.seconds()))
    return whole, computed, max(0.0, 100 - 100 * (whole - computed) / pure)


class _Work:
    """Computation of about so many seconds, in parts between which MPI is let in."""

    def __init__(self, seconds: float):
        self.matrix = np.ones((32, 32), np.float32)
        start = time.perf_counter()
        for _ in range(1000):
            self.matrix @ self.matrix
        self.times = max(1, int(1000 * seconds / (time.perf_counter() - start) / TESTS))

    def run(self, between: Callable[[], object]) -> None:
        for _ in range(TESTS):
            for _ in range(self.times):
                self.matrix @ self.matrix
            between()

    def seconds(self) -> float:
        start = time.perf_counter()
        self.run(lambda: None)
        return time.perf_counter() - start


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return 2 for a user's error."""
    arguments = parser().parse_args(argv)
    world = Communicator(MPI.COMM_WORLD)
    try:
        if arguments.accelerator == "cuda":
            raise CollectiveError("-d cuda: device buffers are not there yet; use -d cpu")
        rows = bench(world, arguments)
    except (CollectiveError, ValueError) as error:
        if world.rank == 0:
            print(f"collectives.bench: {error}", file=sys.stderr)
        return 2
    if world.rank == 0 and arguments.json:
        with open(arguments.json, "w") as file:
            json.dump([asdict(row) for row in rows], file, indent=1)
    if world.rank == 0 and arguments.plot:
        plot(rows, arguments.plot)
    return 0


def bench(world: Communicator, arguments: argparse.Namespace) -> list[Row]:
    """Measure all sizes and algorithms, printing as it goes."""
    what, algorithms = arguments.op.removeprefix("i"), arguments.algorithm.split(",")
    what = arguments.op if arguments.op in NAMES else what
    chosen = sizes(arguments.message_size, arguments.mem_limit)
    overlapped = arguments.op not in NAMES
    say = partial(print, flush=True) if world.rank == 0 else lambda *_: None
    if arguments.list:
        say(*chosen)
        return []
    say(header(arguments, algorithms, overlapped))
    rows = []
    for nbytes in chosen:
        large = nbytes > LARGE
        iterations = arguments.iterations or (100 if large else 1000)
        warmup = arguments.warmup if arguments.warmup >= 0 else (10 if large else 200)
        cases = [Case(world, what, nbytes, algorithm, arguments) for algorithm in algorithms]
        if arguments.validation or nbytes == chosen[0]:
            for case in cases:
                case.validate()
        found = [
            Row(arguments.op, case.algorithm, world.size, nbytes, 1e6 * avg, 1e6 * least, 1e6 * most, iterations)
            for case, (avg, least, most) in zip(cases, measure(cases, warmup, iterations), strict=True)
        ]
        reference = next((row.avg_us for row in found if row.algorithm == "mpi"), None)
        for row, case in zip(found, cases, strict=True):
            row.ratio_to_mpi = row.avg_us / reference if reference else None
            if overlapped:
                whole, computed, row.overlap = overlap(case, row.avg_us / 1e6, warmup, iterations)
                row.overall_us, row.compute_us = 1e6 * whole, 1e6 * computed
        say(line(found, arguments.full))
        rows += found
        for _ in range(0 if arguments.foreign else 2 * len(cases)):
            world.node.windows.pop().free()
        world.forget()
    return rows


def header(arguments: argparse.Namespace, algorithms: Sequence[str], overlapped: bool) -> str:
    """Return OSU's header, and the names of what is added to its columns."""
    what = arguments.op.removeprefix("i") if overlapped else arguments.op
    title = f"\n# OSU MPI {'Non-blocking ' if overlapped else ''}{NAMES[what]} Latency Test v7.5"
    title += f"\n# Datatype: MPI_FLOAT.\n# algorithm: {algorithms[0]}, buffers: " + (
        "plain" if arguments.foreign else "shared within a node"
    )
    if overlapped:
        title += "\n# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n"
        names = ["Overall(us)", "Compute(us)", "Pure Comm.(us)", "Overlap(%)"]
    else:
        title += "\n"
        names = ["Avg Latency(us)"] + ["Min Latency(us)", "Max Latency(us)"] * arguments.full
    text = title + f"{'# Size':10}" + "".join(f"{name:>{WIDTH}}" for name in names)
    if arguments.full:
        text += f"{'Iterations':>12}"
    for name in algorithms[1:]:
        text += f"{name:>{WIDTH}}" + (f"{name + '/mpi':>{WIDTH}}" if "mpi" in algorithms and name != "mpi" else "")
    return text


def line(found: Sequence[Row], full: bool) -> str:
    """Return a size's line."""
    first = found[0]
    values = [first.avg_us] + [first.min_us, first.max_us] * full
    if first.overlap is not None:
        values = [first.overall_us or 0, first.compute_us or 0, first.avg_us, first.overlap]
    text = f"{first.bytes:<10}" + "".join(f"{value:{WIDTH}.{PRECISION}f}" for value in values)
    if full:
        text += f"{first.iterations:12}"
    for row in found[1:]:
        text += f"{row.avg_us:{WIDTH}.{PRECISION}f}"
        if row.ratio_to_mpi is not None and row.algorithm != "mpi":
            text += f"{row.ratio_to_mpi:{WIDTH}.{PRECISION}f}"
    return text


def plot(rows: Sequence[Row], path: str) -> None:
    """Draw latency over size, a line per algorithm. Raise CollectiveError without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise CollectiveError("--plot needs matplotlib; pip install 'scaffe[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for name in dict.fromkeys(row.algorithm for row in rows):
        points = [(row.bytes, row.avg_us) for row in rows if row.algorithm == name]
        axes.loglog(*zip(*points, strict=True), marker="o", markersize=3, label=name)
    axes.set(xlabel="bytes", ylabel="average latency, microseconds", title=f"{rows[0].op}, {rows[0].ranks} ranks")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    sys.exit(main())
