"""Messages: how many a simulation has, counted before it begins. Each takes time and memory, and nothing is printed."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from collectives.schedules.algorithms import Choice, make_schedule
from collectives.schedules.exchange import halves_of
from collectives.schedules.schedule import StepKind
from collectives.simulation.communicator import Chooser
from collectives.verbs import scheduled
from scaffe.errors import ScaffeError
from scaffe.monitor.log import log
from scaffe.parallel.buckets import make_buckets
from scaffe.parallel.owners import GIVES
from scaffe.parallel.run import Run
from scaffe.parallel.workflows.sc_b import ScB
from scaffe.parallel.workflows.sc_ob import ScOb
from scaffe.simulation.rank import bucket_bytes
from scaffe.simulation.training import BEFORE, SimulatedJob

MOST = 5_000_000  # of a simulation: 4 to 7 minutes of a processor, at 45 to 75 us each
LONG = 1_000_000  # of a simulation that says so
SIZES = tuple(1 << k for k in range(31))  # bytes of a message


def check_messages(job: SimulatedJob, run: Run, shared: Chooser) -> None:
    """Raise ScaffeError where there are too many messages to simulate; log their number where that takes minutes."""
    total = count(job, run, shared, run.chunk_bytes)
    if total > MOST:
        way = _way_out(job, run, shared, total)
        raise ScaffeError(f"{total / 1e6:.1f} million messages are too many to simulate (most: {MOST / 1e6:g}): {way}")
    if total > LONG:
        log.info("%.1f million messages are to be simulated, which takes minutes", total / 1e6)


def _way_out(job: SimulatedJob, run: Run, shared: Chooser, total: int) -> str:
    """Return what to give for fewer messages: fewer iterations, which simulate the same, before longer messages."""
    fewer = MOST * (BEFORE + 1 + job.iterations) // total - BEFORE - 1
    if 1 <= fewer < job.iterations:
        return f"give --iterations {fewer} or fewer"
    size = next((size for size in SIZES if count(job, run, shared, size) <= MOST), 0)
    return f"give --chunk-bytes {size} or more" if size else "simulate fewer ranks; --best takes closed forms"


def count(job: SimulatedJob, run: Run, shared: Chooser, chunk_bytes: int) -> int:
    """Return the messages of all iterations, counted in means or not, of so many bytes each (0: as tuned)."""
    if job.size == 1:
        return 0
    one = 0
    for what, algorithm, nbytes in _collectives(job, run):
        choice = shared.choice(what, algorithm, nbytes, chunk_bytes)
        one += messages(what, job.size, nbytes, job.net.packed.flat.itemsize, choice)
    return one * (BEFORE + 1 + job.iterations)


def messages(what: str, ranks: int, nbytes: int, itemsize: int, choice: Choice) -> int:
    """Return the messages of one collective: each chunk passes all links of a tree.

    A ring's blocks are chunks too, and in each round of halving each rank sends a chunk at least.
    """
    elements, cut = nbytes / itemsize, max(1, choice.chunk_bytes // itemsize)
    chunks = ceil(elements / cut)
    if choice.algorithm == "ring":
        return len(halves_of(scheduled(what))) * (ranks - 1) * ranks * ceil(chunks / ranks)
    if choice.algorithm == "halving":
        even = make_schedule(what, "halving", ranks, int(elements), chunk=cut)
        return sum(step.kind is StepKind.SEND for rank in range(ranks) for step in even.rank(rank))
    return (ranks - 1) * chunks * (2 if what == "allreduce" else 1)


def _collectives(job: SimulatedJob, run: Run) -> Iterator[tuple[str, str, int]]:
    """Iterate over an iteration's collectives: name, algorithm and bytes. A user's workflow counts as SC-OBR."""
    most = bucket_bytes(run, job.net.packed.nbytes, job.cluster.links, job.size)
    buckets = make_buckets(job.net, most, cut=run.workflow not in (ScB.name, ScOb.name))
    sizes = [(one.part.stop - one.part.start) * job.net.packed.flat.itemsize for one in buckets]
    whole = [job.net.packed.nbytes]
    for nbytes in whole if run.workflow in (ScB.name, ScOb.name) else sizes:
        yield run.collective, run.how["algorithm"], nbytes
    for nbytes in () if run.collective == "allreduce" else whole if run.workflow == ScB.name else sizes:
        yield GIVES[run.collective], run.how_down["algorithm"], nbytes
