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

from scaffe.errors import LogError
from scaffe.files.atomic import write_atomically
from scaffe.monitor.log import one_line
from scaffe.monitor.log_table import LOSS, RATE, LogTable
from scaffe.tools.log_curves import SPEED, NamedRun, chosen, smooth, values, window_of

SUFFIXES = ("png", "svg", "pdf")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
WIDTH = 3.5  # inches
PANELS = {True: 1.9, False: 1.25}  # inches: of the first panel, and of another
DPI = 300
FAINT = 0.3  # opacity of values that are also drawn smoothed
MARKED = 40  # points of a curve that are marked at most
MARKERS = "os^Dv*"  # of outputs in one panel
DASHES = ("--", ":", "-.")  # of test nets
LETTERS = 56  # of a legend's row; a line and the gap beside it are 8
NUMBERS = 6  # of an axis over the panels at most: more would touch
SIZES = {"font.size": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7}  # points
STYLE = {**SIZES, "svg.fonttype": "none", "text.parse_math": False}  # a name may hold dollars
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
    with _matplotlib().rc_context(STYLE):
        draw(runs, **options).savefig(picture, format=suffix, dpi=DPI)
    write_atomically(out, picture.getvalue())


def draw(
    runs: Sequence[NamedRun], x: str = "iterations", what: Sequence[str] = (), window: int = 0, log_scale: bool = False
) -> Any:
    """Return a matplotlib figure with a panel for each of `what`, over `x`, one of AXES.

    Training is drawn faint, and solid where it is smoothed over `window` rows, 0 for the one that suits; tests are
    dashed, those of further nets dotted. With `log_scale` losses and learning rates have a logarithmic axis. Raise
    LogError for what no run has, and without matplotlib.
    """
    with _matplotlib().rc_context(STYLE):
        names = chosen(runs, what)
        figure, all_axes = _figure(len(names))
        unit, factor = _unit(runs, x)
        for axes, name in zip(all_axes, names, strict=True):
            panel = Panel(axes, name, runs, window)
            for colour, one in zip(_colours(len(runs)), runs, strict=True):
                for net, table in one.nets:
                    panel.draw(one, net, table, one.axis(table, x) / factor, colour)
            panel.finish(log_scale)
        all_axes[-1].set_xlabel(unit)
        all_axes[-1].locator_params("x", nbins=NUMBERS, integer=x != "seconds", min_n_ticks=1)
        _legend(figure, all_axes, runs)
        return figure


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise LogError("pictures need matplotlib, which is not installed: pip install 'scaffe[plot]'") from None
    return matplotlib


def _figure(count: int) -> tuple[Any, list[Any]]:
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


class Panel:
    """The axes of one of `what`, and the curves in it; `outputs` have the names of all values that it shows."""

    def __init__(self, axes: Any, what: str, runs: Sequence[NamedRun], window: int):
        self.axes, self.what, self.window = axes, what, window
        self.in_images = all(one.run.batch for one in runs)
        self.outputs = list(dict.fromkeys(n for one in runs for _, t in one.nets for n in values(one, t, what)))

    def draw(self, one: NamedRun, net: str, table: LogTable, along: Any, colour: Any) -> None:
        """Draw a net's values; a curve's label is run, net and output."""
        for name, logged in values(one, table, self.what, self.in_images).items():
            raw = np.where(np.isfinite(logged), logged, np.nan)
            rows = int(np.isfinite(raw).sum())
            style = {"color": colour, "label": f"{one.name}, {net}, {name}", "linewidth": 1.1}
            window = self.window or window_of(rows)
            if net == "train" and self.what != RATE and window > 1:
                faint = {"alpha": FAINT, "linewidth": 0.6, "label": f"_{style['label']}, as logged"}
                self.axes.plot(along, raw, **style | faint)
                raw = smooth(raw, window)
            self.axes.plot(along, raw, linestyle=_dashes(net), **style, **self._marks(net, name, rows))

    def _marks(self, net: str, name: str, rows: int) -> dict[str, Any]:
        """Return the marks of a curve: of a test's points, and some where they say which output it is."""
        if len(self.outputs) == 1 and (rows > MARKED or (net == "train" and rows > 1)):
            return {}
        marker = MARKERS[self.outputs.index(name) % len(MARKERS)]
        every = max(1, -(-rows // MARKED))
        return {"marker": marker, "markersize": 2.5, "markerfacecolor": "white", "markevery": every}

    def finish(self, log_scale: bool) -> None:
        """Set label, scale and grid, and a legend of the outputs if there are several."""
        from matplotlib.lines import Line2D

        axes, what = self.axes, self.what
        speeds = "images/s" if self.in_images else "iterations/s"
        axes.set_ylabel({RATE: "learning rate", SPEED: speeds}.get(what, one_line(what)))
        if log_scale and what in (LOSS, RATE):
            axes.set_yscale("log")
        elif what == SPEED:
            axes.set_ylim(bottom=0)
        axes.grid(True, linewidth=0.4, alpha=0.4)
        axes.margins(x=0.01)
        axes.spines[["top", "right"]].set_visible(False)
        if len(self.outputs) > 1:
            marks = [(name, self._marks("test", name, 1)) for name in self.outputs]
            keys = [Line2D([], [], color="0.35", linestyle="", label=_short(name), **mark) for name, mark in marks]
            axes.legend(handles=keys, fontsize=6, edgecolor="none", framealpha=0.7, handletextpad=0.2)


def _dashes(net: str) -> str:
    """Return the line of a net: training solid, tests by their numbers."""
    return "-" if net == "train" else DASHES[int(net.split()[1]) % len(DASHES)]


def _short(name: str) -> str:
    """Return a name on one line, without its middle where it would be wider than the picture."""
    name, half = one_line(name), (LETTERS - 8) // 2
    return name if len(name) <= 2 * half else f"{name[: half - 1]}…{name[-half:]}"


def _legend(figure: Any, all_axes: Sequence[Any], runs: Sequence[NamedRun]) -> None:
    """Draw the legend above the panels: the runs by their colours, then training and tests by their lines."""
    from matplotlib.lines import Line2D

    coloured = zip(_colours(len(runs)), runs, strict=True)
    keys = [Line2D([], [], color=colour, label=_short(one.name)) for colour, one in coloured]
    lines = [line for axes in all_axes for line in axes.get_lines()]
    grey: dict[str, Any] = {"color": "0.35", "linewidth": 1.1}
    kinds = [Line2D([], [], label="training", **grey)]
    if any(line.get_alpha() == FAINT for line in lines):
        kinds.append(Line2D([], [], label="as logged", alpha=FAINT, **grey | {"linewidth": 0.6}))
    tests = sorted({net for one in runs for net, _ in one.nets if net != "train"})
    dashed = {line.get_linestyle() for line in lines}
    for net in tests:
        if _dashes(net) in dashed:
            name = net if len(tests) > 1 else "test"
            kinds.append(Line2D([], [], label=name, linestyle=_dashes(net), **grey))  # type: ignore[arg-type]
    keys += kinds if len(kinds) > 1 else []
    widest = max(len(str(key.get_label())) for key in keys)
    columns = max(1, min(len(keys), LETTERS // (8 + widest)))
    figure.legend(handles=keys, loc="outside upper center", ncols=columns, frameon=False, fontsize=7)
