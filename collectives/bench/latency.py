"""Latency of collectives, with the options and the output of the OSU microbenchmarks.

    mpirun -n P python -m collectives.bench reduce [-m MIN:MAX] [-i N] [-x N] [-f] [-c] [-z] [--algorithm auto,mpi,cb-8]

reduce, bcast and allreduce wait for each collective. ireduce, ibcast and iallreduce compute meanwhile and report how
much of the communication that hid, by OSU's formula. The first algorithm fills OSU's own columns. The others' averages
and the ratios to the MPI library's are to the right of them; all are taken in turn in the same run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from mpi4py import MPI

from collectives.agreement import share
from collectives.bench.bounds import Bounds
from collectives.bench.latency_graph import FILES, TTY, LatencyGraph, draw, text
from collectives.bench.options import TYPES, check_outputs, parse, sizes
from collectives.bench.table import Measurement, footer, line, plot, preamble, write_json
from collectives.bench.times import (
    Buffers,
    Case,
    DerivedCase,
    DeviceLibraryCase,
    LibraryCase,
    Phases,
    calls,
    latencies,
    over_ranks,
    percentiles,
)
from collectives.communicator import Communicator
from collectives.errors import ArgumentError, CollectiveError
from collectives.execution.device.choice import NCCL

SHARE_CHUNK = 4 << 20  # bytes of a chunk for --python-share
Say = Callable[..., None]


class WrongNumbers(CollectiveError):
    """A collective gave wrong results."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and print the table; return 2 for a user's error and 1 for wrong results."""
    world = MPI.COMM_WORLD
    say = partial(print, flush=True) if world.rank == 0 else _nothing
    try:
        options = parse(argv, world.rank)
        _check(world, options)
        rows = _with_communicator(world, options, say)
        _on_root(world, lambda: _write(rows, options))
    except WrongNumbers as error:
        say(f"DATA VALIDATION ERROR: {error}")
        return 1
    except CollectiveError as error:
        say(f"collectives.bench: {error}", file=sys.stderr)
        return 2
    return 0


def _with_communicator(world: MPI.Intracomm, options: argparse.Namespace, say: Say) -> list[Measurement]:
    """Return the rows; free everything also after errors, which all ranks raise."""
    comm = Communicator(world, supernodes=options.supernodes)
    try:
        if options.accelerator == "cuda":
            _take_gpu(comm)
            _check_nccl(comm, options)
        rows = bench(comm, options, say)
    except CollectiveError:
        comm.free()
        raise
    comm.free()
    return rows


def bench(comm: Communicator, options: argparse.Namespace, say: Say) -> list[Measurement]:
    """Measure all sizes and algorithms, printing each line. Raise CollectiveError; WrongNumbers for wrong results."""
    bounds = Bounds(comm) if options.accelerator == "cpu" and (options.bound or options.json or options.plot) else None
    rows: list[Measurement] = []
    graphs: list[LatencyGraph] = []
    for kind in options.types:
        options.type = kind
        rows += _table(comm, options, bounds, graphs, say)
    if last := footer(options, comm.device_plans.how if options.accelerator == "cuda" else ""):
        say(last)
    on_gpus = options.accelerator == "cuda"
    for name in options.algorithms if options.supernodes else ["auto"] * (on_gpus and "auto" in options.algorithms):
        say(f"# {comm.explain(options.what, rows[-1].bytes, not options.foreign, name, 'cuda' if on_gpus else 'cpu')}")
    _on_root(comm.comm, lambda: _draw(graphs, options))
    return rows


def _table(
    comm: Communicator, options: argparse.Namespace, bounds: Bounds | None, graphs: list[LatencyGraph], say: Say
) -> list[Measurement]:
    """Measure all sizes of a type; return the rows, and add the graphs."""
    chosen, warning = sizes(options, np.dtype(TYPES[options.type]).itemsize)
    if warning:
        say(warning, file=sys.stderr)
    rows: list[Measurement] = []
    for nbytes in chosen:
        buffers = Buffers(comm, nbytes, options)
        cases = [_case(buffers, name, options) for name in options.algorithms]
        valid = [case.is_right() if options.validation or nbytes == chosen[0] else None for case in cases]
        if nbytes == chosen[0]:
            say(preamble(options))
        found, calls_of_first = _measure(cases, nbytes, options)
        for row, fine in zip(found, valid, strict=True):
            row.valid = fine
            if bounds:
                row.bound_us = found[0].bound_us or 1e6 * bounds.seconds(options.what, nbytes)
                row.bound_fraction = row.bound_us / row.avg_us
        buffers.free()
        say(line(options, found))
        rows += found
        if options.graph:
            graphs.append(LatencyGraph(f"{nbytes} bytes of {options.type}", 1e6 * calls_of_first))
            if TTY in options.graph:
                say(text(graphs[-1]))
        if wrong := [row.algorithm for row in found if row.valid is False]:
            raise WrongNumbers(f"{options.op} by {', '.join(wrong)} on message size {nbytes}.")
    return rows


def _measure(cases: list[Case], nbytes: int, options: argparse.Namespace) -> tuple[list[Measurement], np.ndarray]:
    """Return a row for each algorithm, and this rank's seconds of each call of the first."""
    comm = cases[0].comm.comm
    warmup, iterations = calls(options, nbytes)
    runs = [case.run if options.blocking else case.start_and_finish for case in cases]
    taken = latencies(comm, runs, warmup, iterations)
    averages = 1e6 * over_ranks(comm, taken.mean(1))
    found = [
        Measurement(
            options.op,
            case.algorithm,
            comm.size,
            nbytes,
            avg,
            least,
            most,
            iterations,
            options.type,
            case.transmit_bytes,
        )
        for case, (avg, least, most) in zip(cases, averages.tolist(), strict=True)
    ]
    reference = next((row.avg_us for row in found if row.algorithm == "mpi"), None)
    for row, case, seconds in zip(found, cases, taken, strict=True):
        row.ratio_to_mpi = row.avg_us / reference if reference else None
        if not options.blocking:
            seconds = _overlap(row, case, float(seconds.mean()), options.tests, warmup)
        if options.tail_lat:
            row.percentiles = {p: 1e6 * x for p, x in percentiles(comm, seconds, options.tail_lat).items()}
        if options.python_share:
            row.python_percent = _python_percent(case, nbytes, options)
    return found, taken[0]


def _overlap(row: Measurement, case: Case, pure: float, tests: int, warmup: int) -> np.ndarray:
    """Set the row's phases; return the seconds of each call. `pure`: this rank's seconds of a call that only waits."""
    phases = Phases(case, pure, tests, warmup, row.iterations)
    row.overall_us, row.compute_us, row.init_us = 1e6 * phases.whole, 1e6 * phases.compute, 1e6 * phases.init
    row.test_us, row.wait_us = 1e6 * phases.test, 1e6 * phases.wait
    row.overlap = phases.overlap(row.avg_us / 1e6)
    return phases.overall


def _python_percent(case: Case, nbytes: int, options: argparse.Namespace) -> float | None:
    """Return the percentage of the time that steps cost, not bytes; None for a size below one chunk.

    The same schedule with as many chunks of one element takes the same steps in Python and in MPI, and moves and adds
    almost nothing: its time is more than Python's share.
    """
    chunk = options.chunk_bytes or SHARE_CHUNK
    if nbytes < chunk or case.algorithm == "mpi":
        return None
    itemsize = np.dtype(TYPES[options.type]).itemsize
    comm, chunks = case.comm, -(-nbytes // chunk)
    small = Buffers(comm, chunks * itemsize, options)
    both = [
        Case(case.buffers, options.what, case.algorithm, options, chunk),
        Case(small, options.what, case.algorithm, options, itemsize),
    ]
    taken = over_ranks(comm.comm, latencies(comm.comm, [each.run for each in both], *calls(options, nbytes)).min(1))
    small.free()
    return float(100 * taken[1, 0] / taken[0, 0])


def _case(buffers: Buffers, algorithm: str, options: argparse.Namespace) -> Case:
    """Return a case. Raise AlgorithmError for an unknown or unsuitable algorithm."""
    if algorithm == "mpi" and options.derived:
        return DerivedCase(buffers, options.what, options)
    if algorithm == "mpi":
        kind = LibraryCase if options.accelerator == "cpu" else DeviceLibraryCase
        return kind(buffers, options.what, options)
    case = Case(buffers, options.what, algorithm, options)
    case.plan(0)
    return case


def _take_gpu(comm: Communicator) -> None:
    """Give each rank of a node its own GPU, as far as there are enough. Raise ArgumentError on all ranks."""
    from collectives.execution.device import cuda

    problem = None
    try:
        cuda.take(comm.node.rank)
    except ArgumentError as error:
        problem = ArgumentError(f"-d cuda: {error}")
    share(comm.comm, problem)


def _check_nccl(comm: Communicator, options: argparse.Namespace) -> None:
    """Raise ArgumentError on all ranks where another algorithm would replace NCCL."""
    if NCCL in options.algorithms and (why := comm.device_plans.why_no_nccl):
        raise ArgumentError(f"argument --algorithm: no {NCCL} here: {why}")


def _check(world: MPI.Intracomm, options: argparse.Namespace) -> None:
    """Raise ArgumentError on all ranks, before measuring, for options that don't suit the job."""
    if world.size < 2:
        raise ArgumentError("This test requires at least two processes")
    if options.root >= world.size:
        raise ArgumentError(f"argument -k: expected a root below {world.size}, the number of ranks, got {options.root}")
    _on_root(world, lambda: check_outputs(options))


def _on_root(world: MPI.Intracomm, work: Callable[[], None]) -> None:
    """Do `work` on rank 0; raise its error on all ranks."""
    problem = None
    if world.rank == 0:
        try:
            work()
        except (ArgumentError, OSError) as error:
            problem = str(error)
    problem = world.bcast(problem)
    if problem:
        raise ArgumentError(problem)


def _draw(graphs: Sequence[LatencyGraph], options: argparse.Namespace) -> None:
    """Draw the files that -G asks for."""
    for kind in options.graph:
        if kind in FILES:
            draw(graphs, options.op, kind)


def _write(rows: list[Measurement], options: argparse.Namespace) -> None:
    """Write the files that the options name."""
    if options.json:
        write_json(rows, options.json)
    if options.plot:
        plot(rows, options.plot)


def _nothing(*values: object, **how: object) -> None:
    """Print nothing: the `say` of ranks other than 0."""
