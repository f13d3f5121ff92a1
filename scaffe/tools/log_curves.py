"""Curves of logged runs: their names, what is drawn against what, smoothing, and the table of numbers."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.errors import LogError
from scaffe.monitor.log_table import LOSS, RATE, LogTable
from scaffe.monitor.read_log import LoggedRun, read_log

AXES = "iterations", "seconds", "images"
SPEED = "speed"
OWN = LOSS, RATE, SPEED
MOST_OUTPUTS = 3  # that are drawn where none is named
SMOOTHED = 20  # a curve is smoothed over this part of its rows


@dataclass(frozen=True)
class NamedRun:
    """A run of a log, with the name that the legend gives it and the log's path."""

    name: str
    path: str
    run: LoggedRun

    @property
    def nets(self) -> list[tuple[str, LogTable]]:
        """The nets with rows: "train", and "test 0", "test 1"."""
        run = self.run
        named = [("train", run.train), *((f"test {k}", run.tests[k]) for k in sorted(run.tests))]
        return [(name, table) for name, table in named if len(table)]

    def axis(self, table: LogTable, x: str) -> Any:
        """Return what a row is drawn against. Raise LogError for images where the log does not have the batch."""
        if x == "seconds":
            return table.seconds
        iterations = np.array(table.iterations)
        if x == "images" and not self.run.batch:
            raise LogError(f"{self.path}: its lines do not have the images of an iteration: --x images can't be drawn")
        return iterations * self.run.batch if x == "images" else iterations


def named_runs(paths: Sequence[str], names: Sequence[str] = ()) -> list[NamedRun]:
    """Return the runs of all logs. Without `names`, one for each log, they are named after their files.

    Raise LogError for another number of names and for a log that can't be read.
    """
    if names and len(names) != len(paths):
        raise LogError(f"--names: expected {len(paths)} name(s), one for each log, got {len(names)}")
    named = []
    for path, name in zip(paths, names or _names(paths), strict=True):
        runs = read_log(path)
        several = [f"{name} ({k + 1})" for k in range(len(runs))]
        named += [NamedRun(one, path, run) for one, run in zip(several if len(runs) > 1 else [name], runs, strict=True)]
    return named


def _names(paths: Sequence[str]) -> list[str]:
    """Return the files' names without suffix, behind their folders if two are equal."""
    whole = [path.removesuffix(".gz").removesuffix(".log") for path in paths]
    stems = [os.path.basename(path) for path in whole]
    return stems if len(set(stems)) == len(stems) else whole


def what_is_there(runs: Sequence[NamedRun]) -> list[str]:
    """Return what can be drawn: loss, lr, speed, and the names of outputs."""
    tables = [table for one in runs for _, table in one.nets]
    own = [key for key in (LOSS, RATE) if any(key in table.own for table in tables)]
    outputs = dict.fromkeys(name for table in tables for name in table.outputs)
    speeds = [SPEED] if any(len(one.run.train) > 1 for one in runs) else []
    return list(dict.fromkeys([*own, *speeds, *outputs]))


def chosen(runs: Sequence[NamedRun], what: Sequence[str] = ()) -> list[str]:
    """Return `what` is to be drawn; by default the loss, the outputs that are no loss, and the learning rate.

    Raise LogError for a name that no run has.
    """
    there = what_is_there(runs)
    for name in what:
        if name not in there and not any(name in one for one in there if one not in OWN):
            raise LogError(f"--what {name}: no log has it; known: {' '.join(there)}")
    if what:
        return list(dict.fromkeys(what))
    losses = {name for one in runs for _, table in one.nets for name in table.weighted}
    outputs = [name for name in there if name not in OWN and name not in losses]
    return [*([LOSS] if LOSS in there else []), *outputs[:MOST_OUTPUTS], *([RATE] if RATE in there else [])]


def values(one: NamedRun, table: LogTable, what: str, in_images: bool = False) -> dict[str, Any]:
    """Return the values of a table's rows that belong to `what`, by name; of outputs those whose names contain it."""
    if what == SPEED:
        return {SPEED: speed(one.run, in_images)} if table is one.run.train and len(table) > 1 else {}
    if what in (LOSS, RATE):
        return {what: table.column(what, own=True)} if what in table.own else {}
    names = [what] if what in table.outputs else [name for name in table.outputs if what in name]
    return {name: table.column(name) for name in names}


def speed(run: LoggedRun, in_images: bool) -> Any:
    """Return the iterations or images per second up to each row of training since the one before."""
    seconds = np.diff(run.train.seconds, prepend=np.nan)
    done = np.diff(np.array(run.train.iterations, float), prepend=np.nan) * (run.batch if in_images else 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(seconds > 0, done / seconds, np.nan)


def smooth(raw: Any, window: int) -> Any:
    """Return the means of each finite value and of `window` // 2 on either side; NaN at other values."""
    finite, half = np.isfinite(raw), window // 2
    counts, sums = (np.concatenate([[0.0], np.cumsum(one)]) for one in (finite, np.where(finite, raw, 0.0)))
    places = np.arange(len(raw))
    low, high = np.maximum(places - half, 0), np.minimum(places + half + 1, len(raw))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(finite, (sums[high] - sums[low]) / (counts[high] - counts[low]), np.nan)


def window_of(rows: int) -> int:
    """Return the window of smoothing that suits a curve of as many rows: an odd number, 1 for a short curve."""
    return rows // (2 * SMOOTHED) * 2 + 1


def faults(runs: Sequence[NamedRun]) -> list[str]:
    """Return a line for each run whose loss is not finite in some rows."""
    lines = []
    for one in runs:
        for net, table in one.nets:
            loss = np.array(table.own.get(LOSS, ()))
            bad = [k for k in np.flatnonzero(~np.isfinite(loss)) if k < len(table)]
            if bad:
                first = table.iterations[int(bad[0])]
                text = f"{one.path}: {net}: {len(bad)} loss(es) are not finite, first in iteration {first}: gaps"
                lines.append(text)
    return lines


def table_of_numbers(runs: Sequence[NamedRun]) -> str:
    """Return all rows of all runs as CSV: Caffe's columns NumIters, Seconds, LearningRate, then outputs by name.

    The columns Run and Net come first, Images and Loss before the outputs. A value that a row lacks is empty.
    """
    outputs = list(dict.fromkeys(name for one in runs for _, table in one.nets for name in table.outputs))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["Run", "Net", "NumIters", "Seconds", "LearningRate", "Images", "Loss", *outputs])
    for one in runs:
        for net, table in one.nets:
            writer.writerows([one.name, net, *row] for row in _rows(one, table, outputs))
    return file.getvalue()


def _rows(one: NamedRun, table: LogTable, outputs: Sequence[str]) -> Iterator[list[object]]:
    rates = table.column(RATE, own=True) if table is one.run.train else _rates_at(one.run, table)
    columns = [rates, table.column(LOSS, own=True), *(table.column(name) for name in outputs)]
    for k, iteration in enumerate(table.iterations):
        rate, *others = (_text(float(column[k])) for column in columns)
        images = iteration * one.run.batch if one.run.batch else ""
        yield [iteration, f"{table.times[k]:.6f}", rate, images, *others]


def _rates_at(run: LoggedRun, table: LogTable) -> Any:
    """Return the learning rates in whose iterations the tests were: those of the last rows before them."""
    rates, iterations = run.train.column(RATE, own=True), np.array(run.train.iterations)
    rates, iterations = rates[~np.isnan(rates)], iterations[~np.isnan(rates)]
    before = np.searchsorted(iterations, np.array(table.iterations), side="right") - 1
    return np.array([rates[k] if k >= 0 else np.nan for k in before])


def _text(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.9g}"
