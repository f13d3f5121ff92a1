"""LatencyGraph: the latency of each call of each size, as -G of the OSU microbenchmarks draws it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collectives.bench.table import unfinished

TTY, FILES = "tty", {"png": b"\x89PNG", "pdf": b"%PDF"}  # and with what a file of each kind begins
COLUMNS, ROWS = 60, 8
HEIGHT = 4.5  # inches


class LatencyGraph(NamedTuple):
    """A size's latencies: those of rank 0's calls of the first algorithm, in microseconds."""

    title: str
    latencies: np.ndarray


def file_of(op: str, kind: str) -> str:
    """Return the name of a graph's file."""
    return f"osu_{op}.{kind}"


def text(graph: LatencyGraph) -> str:
    """Return the graph in characters, a column for each call, or for the average of several."""
    columns = [part.mean() for part in np.array_split(graph.latencies, min(COLUMNS, len(graph.latencies)))]
    least, most = min(columns), max(columns)
    heights = [round((one - least) / (most - least or 1.0) * (ROWS - 1)) for one in columns]
    lines = [f"# {graph.title}, {len(graph.latencies)} calls"]
    for row in reversed(range(ROWS)):
        value = f"{least + (most - least) * row / (ROWS - 1):.2f}" if row in (0, ROWS - 1) else ""
        lines.append(f"# {value:>14} |" + "".join("*" if height == row else " " for height in heights).rstrip())
    return "\n".join(lines)


def draw(graphs: Sequence[LatencyGraph], op: str, kind: str) -> None:
    """Draw all sizes into a file of this kind in the current folder, a line for each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, HEIGHT))
    for graph in graphs:
        axes.plot(graph.latencies, linewidth=0.8, label=graph.title)
    axes.set_yscale("log")
    axes.set(xlabel="call", ylabel="latency (microseconds)", title=op)
    axes.legend(fontsize="x-small", ncols=2)
    with unfinished(file_of(op, kind)) as part:
        figure.savefig(part, dpi=150, bbox_inches="tight", format=kind)
    pyplot.close(figure)
