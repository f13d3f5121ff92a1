"""Plot of a trace: the threads and messages of all ranks in one typical iteration, by matplotlib."""

from __future__ import annotations

import io
import os
from collections import defaultdict
from typing import Any

from scaffe.errors import TimelineError
from scaffe.files.atomic import write_atomically
from scaffe.monitor.spans import (
    AGGREGATION,
    BACKWARD,
    FORWARD,
    GATHER,
    ITERATION,
    PROPAGATION,
    READ,
    TRANSFORM,
    UPDATE,
    WAIT,
    Span,
)
from scaffe.timeline.overlap import Summary

SUFFIXES = ("png", "svg", "pdf")
MOST_RANKS = 16  # that a picture shows
ROW = 0.24  # inches
NARROW = 0.009  # of the picture's width, per letter: a name is left out if its bar is narrower
COLOURS = {
    FORWARD: "#4C9F70",
    BACKWARD: "#3F72AF",
    GATHER: "#7FC8D8",
    UPDATE: "#8E5EA2",
    PROPAGATION: "#F2A541",
    AGGREGATION: "#E07A5F",
    READ: "#B8B8B8",
    TRANSFORM: "#8C8C8C",
    WAIT: "#F7E6E6",
}


def plot(summary: Summary, out: str | os.PathLike[str]) -> None:
    """Write a picture of the iteration whose time is the median, in the format that the suffix of `out` names.

    The file appears complete or not at all. Raise TimelineError for an unknown format or without matplotlib, and
    SnapshotError if the file can't be written.
    """
    suffix = os.path.splitext(os.fspath(out))[1][1:].lower()
    if suffix not in SUFFIXES:
        raise TimelineError(f"{out}: unknown format '{suffix}'; known: {' '.join(SUFFIXES)}")
    picture = io.BytesIO()
    draw(summary).savefig(picture, format=suffix, dpi=150)
    write_atomically(out, picture.getvalue())


def draw(summary: Summary) -> Any:
    """Return a matplotlib figure of the typical iteration. Raise TimelineError without matplotlib."""
    Figure, patches = _matplotlib()
    name, begin, end = typical(summary)
    rows = _rows(summary, begin, end)
    figure = Figure(figsize=(14, 1.5 + ROW * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for y, (_, spans) in enumerate(rows):
        for span in spans:
            _bar(axes, y, span, begin, end)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=8)
    for label, (_, spans) in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("normal" if spans else "bold")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1e3 * (end - begin))
    axes.set_xlabel("ms")
    axes.set_title(f"{name}, {summary.trace.run.workflow}", loc="left", fontsize=11)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    handles = [patches.Patch(facecolor=colour, label=kind) for kind, colour in COLOURS.items()]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles), frameon=False, fontsize=8)
    return figure


def _matplotlib() -> tuple[Any, Any]:
    try:
        from matplotlib import patches
        from matplotlib.figure import Figure
    except ImportError:
        raise TimelineError("pictures need matplotlib, which is not installed: pip install 'scaffe[plot]'") from None
    return Figure, patches


def typical(summary: Summary) -> tuple[str, float, float]:
    """Return name, begin and end, over all ranks, of the iteration whose time is the median."""
    windows: defaultdict[str, list[Span]] = defaultdict(list)
    for rank in summary.trace.ranks.values():
        for span in rank.spans:
            if span.kind == ITERATION and span.name in summary.names:
                windows[span.name].append(span)
    limits = {name: (min(s.begin for s in spans), max(s.end for s in spans)) for name, spans in windows.items()}
    by_time = sorted(limits, key=lambda name: limits[name][1] - limits[name][0])
    name = by_time[(len(by_time) - 1) // 2]
    return name, *limits[name]


def _rows(summary: Summary, begin: float, end: float) -> list[tuple[str, list[Span]]]:
    """Return the tracks with spans between `begin` and `end`, each rank's below a row of its name."""
    rows: list[tuple[str, list[Span]]] = []
    for rank in list(summary.trace.ranks.values())[:MOST_RANKS]:
        shown = [span for span in rank.spans if span.kind != ITERATION and span.begin < end and span.end > begin]
        by_track = [(track, [span for span in shown if span.track == track]) for track in rank.tracks.values()]
        rows += [(rank.name, []), *((track, spans) for track, spans in by_track if spans)]
    return rows


def _bar(axes: Any, y: int, span: Span, begin: float, end: float) -> None:
    """Draw a span, with its name if that fits."""
    left, right = 1e3 * (max(span.begin, begin) - begin), 1e3 * (min(span.end, end) - begin)
    axes.barh(y, right - left, left=left, height=0.82, color=COLOURS[span.kind], edgecolor="white", linewidth=0.4)
    label = f"wait: {span.name}" if span.kind == WAIT else span.name
    if right - left > NARROW * len(label) * 1e3 * (end - begin):
        axes.text((left + right) / 2, y, label, ha="center", va="center", fontsize=7, color=_ink(span.kind))


def _ink(kind: str) -> str:
    return "white" if kind in (FORWARD, BACKWARD, UPDATE) else "black"
