"""Model: the time of a schedule on a described cluster.

    python -m collectives.model reduce --ranks 160 --bytes 64M --cluster kesch

`predict` simulates the very schedule that would run, event by event (`simulation.events`, `model.network`). For a
single tree on uncrowded links, `tree_times` gives the same times directly. `cost` takes an algorithm's closed form
where its file has one.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from collectives.errors import AlgorithmError, CollectiveError
from collectives.execution.execute import InFlight
from collectives.group import Group
from collectives.model.clusters import CLUSTERS, Cluster, find_cluster
from collectives.model.network import LinkNetwork
from collectives.model.tree_times import TreeTimes, crowded
from collectives.schedules import registry
from collectives.schedules.algorithms import make_schedule
from collectives.schedules.halving import RENUMBERED
from collectives.schedules.registry import CollectiveTime
from collectives.schedules.schedule import Schedule
from collectives.schedules.tree_steps import TreeSteps
from collectives.simulation.events import simulate
from collectives.verbs import REDUCE, SCHEDULED


def predict(
    schedule: Schedule,
    cluster: Cluster,
    *,
    group: Group | None = None,
    itemsize: int = 4,
    in_flight: InFlight | None = None,
) -> float:
    """Return the seconds that `schedule` takes on `cluster`.

    - `group`: the placement of the ranks; they fill node after node by default.
    - `itemsize`: bytes of an element.
    - `in_flight`: the executors' limits; with it every event is simulated, without it `tree_times` is used where valid.
    """
    group = group or cluster.group(schedule.size)
    plan = _short_way(schedule, cluster, group)
    if plan and not in_flight:
        return TreeTimes(plan, cluster, group, itemsize).finish()
    return simulate(schedule, in_flight or InFlight(), LinkNetwork(cluster, group, itemsize))


def _short_way(schedule: Schedule, cluster: Cluster, group: Group) -> TreeSteps | None:
    """Return the schedule's steps if they are one tree whose messages don't crowd a shared link, else None."""
    plan = schedule.steps
    return plan if isinstance(plan, TreeSteps) and len(plan.trees) == 1 and not crowded(plan, cluster, group) else None


@dataclass(frozen=True)
class Prediction:
    """A row of a table: an algorithm, its best chunk in bytes, and its seconds.

    `cut`: finer chunks, which may be better, have too many steps to simulate.
    """

    algorithm: str
    chunk: int
    seconds: float
    cut: bool = False


THEIRS, TUNED = "S-Caffe's", "tuned"
SCAFFE = ("chain", "binomial", "cb-4", "cb-8", "cc-8")
SCAFFE_CHUNKS = 8  # by equations 1 and 2 a chain of 8 gains most, as S-Caffe found, with 7 to 17 chunks
MOST_STEPS = 30_000  # steps whose events a table simulates; finer chunks are left out
MANY_RANKS = 10_000
LEAST_CHUNK, MOST_CHUNKS = 16 << 10, 512


def names_of(op: str) -> list[str]:
    """Return the names of the algorithms in a table."""
    return [name for each in registry.algorithms(op) for name in each.modelled(op)]


def scaffe_row(algorithm: str, cluster: Cluster, ranks: int, elements: int, itemsize: int = 4) -> Prediction:
    """Return S-Caffe's reduce: chains in SCAFFE_CHUNKS chunks, binomial trees whole, one level after the other."""
    chunk = max(1, elements if algorithm == "binomial" else -(-elements // SCAFFE_CHUNKS))
    name = algorithm if algorithm in ("chain", "binomial") else f"{algorithm}:levels"
    schedule = make_schedule("reduce", name, ranks, elements, chunk=chunk)
    return Prediction(f"{THEIRS} {algorithm}", chunk * itemsize, predict(schedule, cluster, itemsize=itemsize))


def best_row(
    op: str, algorithm: str, cluster: Cluster, ranks: int, elements: int, itemsize: int = 4
) -> Prediction | None:
    """Return `algorithm` with its best chunk; None where even its longest messages make too many steps.

    Chunks shrink by a factor of 2 (of 8 for many ranks) until the time rises.
    """
    group = cluster.group(ranks)
    order = group.round_robin() if algorithm.endswith(RENUMBERED) else None
    best: Prediction | None = None
    for chunk in _chunks(elements, itemsize, 2 if ranks < MANY_RANKS else 8):
        name = algorithm.removesuffix(RENUMBERED)
        schedule = make_schedule(op, name, ranks, elements, chunk=chunk, order=order)
        steps = 0 if _short_way(schedule, cluster, group) else len(schedule.rank(ranks // 2)) * ranks
        if steps > (MOST_STEPS if best else 10 * MOST_STEPS):
            return best and replace(best, cut=True)
        row = Prediction(algorithm, chunk * itemsize, predict(schedule, cluster, group=group, itemsize=itemsize))
        if best and row.seconds > best.seconds:
            break
        best = row
    return best


def cost(
    verb: str, algorithm: str, cluster: Cluster, ranks: int, nbytes: int, chunks: Sequence[int], itemsize: int = 4
) -> CollectiveTime:
    """Return an algorithm's time in the best of some chunks, by its closed form if it has one, else by its steps.

    `nbytes` and `chunks` are in bytes; steps are counted in the chunks of `best_row`. Raise AlgorithmError for an
    unknown algorithm, one that can't do `verb`, and one whose steps are too many to count.
    """
    found = registry.find(algorithm, verb)
    closed = [found.cost(verb, algorithm, cluster, ranks, nbytes, chunk) for chunk in chunks]
    if None not in closed:
        return min(filter(None, closed), key=lambda one: one.seconds)
    is_few, elements = ranks < MANY_RANKS, -(-nbytes // itemsize)
    row = best_row(verb, algorithm, cluster, ranks, elements, itemsize) if is_few else None
    if row is None:
        raise AlgorithmError(f"'{algorithm}' has no closed form, and too many steps over {ranks} ranks to count")
    return CollectiveTime(row.seconds, row.seconds, algorithm, row.chunk)


def _chunks(elements: int, itemsize: int, by: int) -> Iterator[int]:
    """Yield lengths of chunks: the whole vector, then `by` times less each, while a chunk is worth a message."""
    chunk = max(1, elements)
    while True:
        yield chunk
        chunk = -(-chunk // by)
        if chunk * itemsize < LEAST_CHUNK or -(-elements // chunk) > MOST_CHUNKS:
            return


def tuned_row(
    op: str, cluster: Cluster, ranks: int, elements: int, itemsize: int = 4, algorithms: Sequence[str] | None = None
) -> Prediction:
    """Return the fastest of `algorithms` (all by default) with its best chunk."""
    names = names_of(op) if algorithms is None else algorithms
    rows = [best_row(op, name, cluster, ranks, elements, itemsize) for name in names]
    return min((row for row in rows if row), key=lambda row: row.seconds)


def table(
    op: str, cluster: Cluster, ranks: int, elements: int, itemsize: int = 4, algorithms: Sequence[str] | None = None
) -> list[Prediction]:
    """Return a row for each algorithm, fastest first.

    Without `algorithms` it has all of them, and S-Caffe's own forms for a reduce.
    """
    rows = [best_row(op, name, cluster, ranks, elements, itemsize) for name in algorithms or names_of(op)]
    if SCHEDULED[op] is REDUCE and 1 < ranks < MANY_RANKS and not algorithms:
        rows += [scaffe_row(name, cluster, ranks, elements, itemsize) for name in SCAFFE]
    return sorted((row for row in rows if row), key=lambda row: row.seconds)


def bound(op: str, cluster: Cluster, ranks: int, n: int) -> float:
    """Return the least seconds for n bytes: the time of the slowest link that all data must cross."""
    beta = cluster.beta if ranks > cluster.ranks_per_node else cluster.beta_in
    return SCHEDULED[op].moved(ranks) * n * beta


def parse_bytes(text: str) -> int:
    """Return the bytes of `64M`, `4K` or `1000`. Raise argparse's error for another text."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    if not match:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a number of bytes; expected one such as 1000, 64K, 64M or 1G"
        )
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of predicted times."""
    parser = argparse.ArgumentParser(prog="python -m collectives.model", description=main.__doc__)
    parser.add_argument("op", choices=SCHEDULED)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument(
        "--bytes", type=parse_bytes, default=64 << 20, help="bytes of each rank's data, as in 64M (default: 64M)"
    )
    parser.add_argument("--cluster", default="kesch", help=f"{', '.join(CLUSTERS)} (default: kesch)")
    parser.add_argument("--itemsize", type=int, default=4, choices=(2, 4, 8), help="bytes of an element (default: 4)")
    parser.add_argument("--algorithms", help="a subset, as in chain,cb-8 (default: all)")
    options = parser.parse_args(arguments)
    names = options.algorithms.split(",") if options.algorithms else names_of(options.op)
    try:
        cluster = find_cluster(options.cluster)
        if options.ranks < 1:
            raise AlgorithmError(f"--ranks is {options.ranks}; it must be at least 1")
        elements = options.bytes // options.itemsize
        rows = table(options.op, cluster, options.ranks, elements, options.itemsize, options.algorithms and names)
    except CollectiveError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    _print(options.op, cluster, options.ranks, options.bytes, rows)
    left_out = set(names) - {row.algorithm for row in rows}
    if left_out:
        print(f"left out, too many messages to simulate: {', '.join(sorted(left_out))}")
    print(f"\n{cluster.source}")
    return 0


def _print(op: str, cluster: Cluster, ranks: int, n: int, rows: Sequence[Prediction]) -> None:
    """Print the table."""
    least = bound(op, cluster, ranks, n)
    print(f"{op} of {n} bytes over {ranks} ranks of {cluster.name}: links allow {least * 1e3:.3f} ms")
    print(f"{'algorithm':<22}{'chunk, bytes':>14}{'ms':>12}{'x bound':>9}")
    ours = [row for row in rows if not row.algorithm.startswith(THEIRS)]
    for row in [replace(row, algorithm=TUNED) for row in ours[:1]] + list(rows):
        ratio = f"{row.seconds / least:9.2f}" if least else f"{'-':>9}"
        note = "  finer chunks not tried" if row.cut else ""
        note = f"  {ours[0].algorithm}" if row.algorithm == TUNED else note
        print(f"{row.algorithm:<22}{row.chunk:>14}{row.seconds * 1e3:>12.3f}{ratio}{note}")
