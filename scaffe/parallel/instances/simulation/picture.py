"""Picture: scaling over cores, and memory bandwidth over time, by matplotlib (ParaX, figures 1, 12 and 13)."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import ScaffeError
from scaffe.files.atomic import write_atomically
from scaffe.parallel.instances.simulation.machine import Machine
from scaffe.parallel.instances.simulation.predict import Predicted

SUFFIXES = ("png", "svg", "pdf")
EACH, ALL = "#3F72AF", "#E07A5F"
BINS = 200  # of the bandwidth's curve


def check(out: str) -> None:
    """Raise ScaffeError where `plot` could not draw into a file of this name."""
    if os.path.splitext(out)[1][1:].lower() not in SUFFIXES:
        raise ScaffeError(f"{out}: unknown format; known: {' '.join(SUFFIXES)}")
    _figure()


def plot(scaling: Sequence[tuple[int, Predicted, Predicted]], best: Predicted, machine: Machine, out: str) -> None:
    """Write the picture in the format that the suffix of `out` names. The file appears complete or not at all."""
    figure = _figure()(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    cores = [row[0] for row in scaling]
    left.plot(cores, [each.rate for _, each, _ in scaling], "o-", color=EACH, label="one instance per core")
    left.plot(cores, [one.rate for _, _, one in scaling], "s-", color=ALL, label="one instance on all cores")
    left.set(xlabel="cores", ylabel="images/s", xlim=(0, None), ylim=(0, None))
    _draw_bandwidth(right, scaling[-1][2], machine, ALL, "one instance on all cores")
    _draw_bandwidth(right, best, machine, EACH, f"{best.instances} instances of {best.division.x}")
    right.set(xlabel="part of the run", ylabel="memory bandwidth used, %", xlim=(0, 1), ylim=(0, 105))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=8)
    content = io.BytesIO()
    figure.savefig(content, format=os.path.splitext(out)[1][1:].lower(), dpi=110)
    write_atomically(out, content.getvalue())


def _draw_bandwidth(axes: Any, one: Predicted, machine: Machine, colour: str, label: str) -> None:
    parts = 100 * binned(one.usage.seconds, one.usage.bandwidth, BINS) / (machine.bandwidth * machine.domains)
    label = f"{label}: mean {one.bandwidth_used:.0%}"
    axes.plot((np.arange(BINS) + 0.5) / BINS, parts, color=colour, linewidth=0.9, label=label)


def binned(seconds: Sequence[float], values: Sequence[float], bins: int) -> np.ndarray:
    """Return the means over time of a value that is constant in each interval, in bins of equal time."""
    ends = np.concatenate([[0.0], np.cumsum(seconds)])
    sums = np.concatenate([[0.0], np.cumsum(np.multiply(seconds, values))])
    edges = np.linspace(0.0, ends[-1], bins + 1)
    return np.asarray(np.diff(np.interp(edges, ends, sums)) / np.diff(edges))


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ScaffeError("pictures need matplotlib, which is not installed: pip install 'scaffe[plot]'") from None
    return Figure
