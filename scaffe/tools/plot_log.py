"""Picture of logged runs: panels of loss, outputs and learning rate over a shared axis, by matplotlib.

It is as wide as a column of a paper: 3.5 inches, with text of 8 points. The colours are those of Okabe and Ito, which
people with any colour vision can tell apart.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.atomic import write_atomically
from scaffe.errors import LogError
from scaffe.monitor.log_table import LOSS, RATE, LogTable
from scaffe.tools.log_curves import SPEED, NamedRun, chosen, smooth, values, window_of

SUFFIXES = ("png", "svg", "pdf")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
WIDTH = 3.5  # inches
PANELS = {True: 1.9, False: 1.25}  # inches: of the first panel, and of another
DPI = 300
FAINT = 0.3  # opacity of values that are also drawn smoothed
MARKED = 40  # rows of a test whose points are marked
LETTERS = 56  # of a legend's row; a line and the gap beside it are 8
TICKS = {"font.size": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7, "svg.fonttype": "none"}
UNITS = {"seconds": (("training time in s", 1), ("training time in min", 60), ("training time in h", 3600))}


def check_format(out: str | os.PathLike[str]) -> str:
    """Return the format that the suffix of `out` names. Raise LogError for an unknown one."""
    suffix = os.path.splitext(os.fspath(out))[1][1:].lower()
    if suffix not in SUFFIXES:
        raise LogError(f"{out}: unknown format '{suffix}'; known: {' '.join(SUFFIXES)}")
    return suffix


def plot(runs: Sequence[NamedRun], out: str | os.PathLike[str], **options: Any) -> None:
    """Write the picture that `draw` returns in the format that the suffix of `out` names.

    The file appears complete or not at all. Raise LogError for an unknown format, and SnapshotError if the file can't
    be written.
    """
    suffix, picture = check_format(out), io.BytesIO()
    with _matplotlib().rc_context(TICKS):
        draw(runs, **options).savefig(picture, format=suffix, dpi=DPI)
    write_atomically(out, picture.getvalue())


def draw(
    runs: Sequence[NamedRun], x: str = "iterations", what: Sequence[str] = (), window: int = 0, log_scale: bool = False
) -> Any:
    """Return a matplotlib figure with a panel for each of `what`, over `x`, one of AXES.

    Training is drawn faint, and solid where it is smoothed over `window` rows, 0 for the one that suits; tests are
    dashed. With `log_scale` losses and learning rates have a logarithmic axis. Raise LogError for what no run has, and
    without matplotlib.
    """
    with _matplotlib().rc_context(TICKS):
        panels = chosen(runs, what)
        figure, all_axes = _panels(len(panels))
        unit, factor = _unit(runs, x)
        for axes, panel in zip(all_axes, panels, strict=True):
            for colour, one in zip(_colours(len(runs)), runs, strict=True):
                for net, table in one.nets:
                    _curves(axes, one, net, table, panel, colour, (x, factor), window)
            _finish(axes, panel, runs, log_scale)
        all_axes[-1].set_xlabel(unit)
        _legend(figure, all_axes, runs)
        return figure


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise LogError("pictures need matplotlib, which is not installed: pip install 'scaffe[plot]'") from None
    return matplotlib


def _panels(count: int) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    heights = [PANELS[k == 0] for k in range(count)]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.5), layout="constrained")
    grid = figure.subplots(count, 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})
    figure.align_ylabels()
    return figure, list(grid[:, 0])


def _unit(runs: Sequence[NamedRun], x: str) -> tuple[str, float]:
    """Return the axis's label, and by what its values are divided."""
    if x != "seconds":
        return x, 1
    longest = max(one.run.seconds for one in runs)
    return next((unit for unit in reversed(UNITS[x]) if longest >= 3 * unit[1]), UNITS[x][0])


def _colours(count: int) -> list[Any]:
    """Return a colour for each run: more than COLOURS are taken, in their order, from matplotlib's viridis."""
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    return [_matplotlib().colormaps["viridis"](k / count) for k in range(count)]


def _curves(
    axes: Any, one: NamedRun, net: str, table: LogTable, what: str, colour: Any, over: tuple[str, float], window: int
) -> None:
    """Draw a net's values; a curve's label, which `_legend` reads, is run, net and output."""
    x, factor = over
    along = one.axis(table, x) / factor
    for k, (name, logged) in enumerate(values(one, table, what).items()):
        raw = np.where(np.isfinite(logged), logged, np.nan)
        count = int(np.isfinite(raw).sum())
        style = {"color": colour, "label": f"{one.name}, {net}, {name}", "linewidth": 1.1}
        if net != "train" or count == 1:
            style |= {"marker": "os^D"[k % 4] if count <= MARKED else "", "markersize": 2.5, "markerfacecolor": "white"}
        elif what != RATE and (rows := window or window_of(count)) > 1:
            faint = {"alpha": FAINT, "linewidth": 0.6, "label": f"_{style['label']}, as logged"}
            axes.plot(along, raw, **style | faint)
            raw = smooth(raw, rows)
        axes.plot(along, raw, linestyle="-" if net == "train" else "--", **style)


def _finish(axes: Any, what: str, runs: Sequence[NamedRun], log_scale: bool) -> None:
    """Set a panel's label, scale and grid."""
    speeds = "images/s" if all(one.run.batch for one in runs) else "iterations/s"
    axes.set_ylabel({RATE: "learning rate", SPEED: speeds}.get(what, what))
    if log_scale and what in (LOSS, RATE):
        axes.set_yscale("log")
    elif what == SPEED:
        axes.set_ylim(bottom=0)
    axes.grid(True, linewidth=0.4, alpha=0.4)
    axes.margins(x=0.01)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(figure: Any, all_axes: Sequence[Any], runs: Sequence[NamedRun]) -> None:
    """Draw the legend above the panels: the runs by their colours, then training and tests by their lines."""
    from matplotlib.lines import Line2D

    keys = [Line2D([], [], color=colour, label=one.name) for colour, one in zip(_colours(len(runs)), runs, strict=True)]
    lines = [line for axes in all_axes for line in axes.get_lines()]
    grey: dict[str, Any] = {"color": "0.35", "linewidth": 1.1}
    kinds = [Line2D([], [], label="training", **grey)]
    if any(line.get_alpha() == FAINT for line in lines):
        kinds.append(Line2D([], [], label="as logged", alpha=FAINT, **grey | {"linewidth": 0.6}))
    if any(line.get_linestyle() == "--" for line in lines):
        kinds.append(Line2D([], [], label="test", linestyle="--", **grey))
    keys += kinds if len(kinds) > 1 else []
    widest = max(len(str(key.get_label())) for key in keys)
    columns = max(1, min(len(keys), LETTERS // (8 + widest)))
    figure.legend(handles=keys, loc="outside upper center", ncols=columns, frameon=False, fontsize=7)
