"""The benchmark's table, in the format of the OSU microbenchmarks 7.

It has comment lines, then one line per size: columns 10 and then 18 wide, two decimals, "Iterations" 12 wide. What OSU
does not have is to the right of its columns, so that programs which read those by number or by pattern still work.
Nothing is added above them, since some readers skip a fixed number of lines.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from collectives.verbs import SCHEDULED

WIDTH = 18
PHASES = {  # the columns of non-blocking collectives, and their fields of a row
    "Overall(us)": "overall_us",
    "Compute(us)": "compute_us",
    "Coll. Init(us)": "init_us",
    "MPI_Test(us)": "test_us",
    "MPI_Wait(us)": "wait_us",
    "Pure Comm.(us)": "avg_us",
    "Min Comm.(us)": "min_us",
    "Max Comm.(us)": "max_us",
    "Overlap(%)": "overlap",
}
SHORT = ("Overall(us)", "Compute(us)", "Pure Comm.(us)", "Overlap(%)")
OVERALL = "Coll. Init + Compute + MPI_Test + MPI_Wait"


@dataclass
class Measurement:
    """A row of the table: a size and an algorithm.

    Times are in microseconds: the average over ranks, and the minimum and maximum of any rank.
    """

    op: str
    algorithm: str
    ranks: int
    bytes: int
    avg_us: float
    min_us: float
    max_us: float
    iterations: int
    type: str = "mpi_float"
    transmit_bytes: int | None = None
    ratio_to_mpi: float | None = None
    bound_us: float | None = None
    bound_fraction: float | None = None
    python_percent: float | None = None
    valid: bool | None = None
    percentiles: dict[int, float] | None = None
    overall_us: float | None = None
    compute_us: float | None = None
    init_us: float | None = None
    test_us: float | None = None
    wait_us: float | None = None
    overlap: float | None = None


def preamble(options: argparse.Namespace) -> str:
    """Return the lines above the sizes; the title stands above the first type's alone."""
    device = "-CUDA" if options.accelerator == "cuda" else ""
    kind, overall = ("", "") if options.blocking else ("Non-blocking ", f"# Overall = {OVERALL}\n\n")
    title = f"\n# OSU MPI{device} {kind}{SCHEDULED[options.what].title} Latency Test v7.5\n{overall}"
    names = "".join(f"{name:>{width}}" for name, width, _ in columns(options, []))
    is_first = options.type == options.types[0]
    return f"{title if is_first else ''}# Datatype: {options.type.upper()}.\n{'# Size':10}{names}"


def line(options: argparse.Namespace, found: Sequence[Measurement]) -> str:
    """Return the line of a size."""
    return f"{found[0].bytes:<10}" + "".join(f"{value:>{width}}" for _, width, value in columns(options, found))


def footer(options: argparse.Namespace, device: str = "") -> str:
    """Return a line below the sizes about what OSU's columns lack; "" where only OSU's options are used.

    `device` says how device arrays travel, "" for host arrays.
    """
    if options.algorithm == "auto" and not options.foreign:
        return ""
    buffers = "plain" if options.foreign else device or "those of empty(), which the ranks of a node share"
    return f"# OSU's columns are those of {options.algorithms[0]}; buffers: {buffers}."


def columns(options: argparse.Namespace, found: Sequence[Measurement]) -> Iterator[tuple[str, int, str]]:
    """Yield the name, the width and the value of each column; without rows the values are empty."""
    first = found[0] if found else None
    yield from _times(options, first)
    if options.validation:
        yield "Validation", WIDTH, "Pass" if found and all(row.valid for row in found) else "Fail"
    for p in options.tail_lat or ():
        yield f"P{p} Tail Lat(us)", WIDTH, _number(first.percentiles[p] if first and first.percentiles else None)
    if options.derived:
        yield "Transmit Size", WIDTH, str(first.transmit_bytes) if first else ""
    yield from _comparison(options, found)
    if options.bound:
        yield "Bound(us)", WIDTH, _field(first, "bound_us")
        yield "Bound/Avg", WIDTH, _field(first, "bound_fraction")
    if options.python_share:
        yield "Python(%)", WIDTH, _field(first, "python_percent")


def _times(options: argparse.Namespace, row: Measurement | None) -> Iterator[tuple[str, int, str]]:
    """Yield OSU's own columns."""
    if not options.blocking:
        for name in PHASES if options.full else SHORT:
            yield name, WIDTH, _field(row, PHASES[name])
        return
    yield "Avg Latency(us)", WIDTH, _field(row, "avg_us")
    if options.full:
        yield "Min Latency(us)", WIDTH, _field(row, "min_us")
        yield "Max Latency(us)", WIDTH, _field(row, "max_us")
        yield "Iterations", 12, str(row.iterations) if row else ""


def _comparison(options: argparse.Namespace, found: Sequence[Measurement]) -> Iterator[tuple[str, int, str]]:
    """Yield the averages of all algorithms but the first, which has OSU's column; then the ratios to the library's."""
    for k, name in enumerate(options.algorithms[1:], 1):
        yield _name(f"{name}(us)"), WIDTH, _number(found[k].avg_us if found else None)
    if "mpi" in options.algorithms:
        for k, name in enumerate(options.algorithms):
            if name != "mpi":
                yield _name(f"{name}/mpi"), WIDTH, _number(found[k].ratio_to_mpi if found else None)


def _name(text: str) -> str:
    """Return a column's name, separated from its left neighbour for any length."""
    return text if len(text) < WIDTH else f" {text}"


def _field(row: Measurement | None, name: str) -> str:
    """Return a field of a row as text."""
    return _number(getattr(row, name) if row else None)


def _number(value: float | None) -> str:
    """Return a number with two decimals, "-" for None."""
    return "-" if value is None else f"{value:.2f}"


def write_json(rows: Sequence[Measurement], path: str) -> None:
    """Write the rows, whole or not at all."""
    with unfinished(path) as part, open(part, "w") as file:
        json.dump([asdict(row) for row in rows], file, indent=1)
        file.write("\n")


def plot(rows: Sequence[Measurement], path: str) -> None:
    """Draw latency over size, a line per algorithm, and the bound as a dashed line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    kinds = list(dict.fromkeys((row.algorithm, row.type) for row in rows))
    for kind in kinds:
        points = [(row.bytes, row.avg_us) for row in rows if (row.algorithm, row.type) == kind]
        label = kind[0] if len({one for _, one in kinds}) == 1 else " ".join(kind)
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=label)
    bound = [(row.bytes, row.bound_us) for row in rows if (row.algorithm, row.type) == kinds[0] and row.bound_us]
    if bound:
        axes.plot(*zip(*bound, strict=True), "k--", linewidth=1, label="bound")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xlabel="message (bytes)", ylabel="average latency (microseconds)")
    axes.set_title(f"{rows[0].op}, {rows[0].ranks} ranks")
    axes.grid(alpha=0.3)
    axes.legend()
    with unfinished(path) as part:
        figure.savefig(part, dpi=150, bbox_inches="tight", format="png")


@contextmanager
def unfinished(path: str) -> Iterator[str]:
    """Yield the name of a file that takes the place of `path` once it is written."""
    part = f"{path}.part"
    yield part
    os.replace(part, path)
