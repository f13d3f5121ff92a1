"""The present state of a run, from its log, as lines for people: each has a name and a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, log10

import numpy as np

from scaffe.monitor.log import one_line
from scaffe.monitor.log_table import LOSS, RATE
from scaffe.monitor.read_log import LoggedRun, LogReader

GOOD, WARNING, BAD = "good", "warning", "bad"
QUIET = 30.0  # seconds without a new line that are reported, if they are also QUIET_ROWS times those between rows
QUIET_ROWS = 5
PACE_ROWS = 20  # the last rows that the pace is measured over
BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = "_.-:=+*#"
DECADES = 1.0  # powers of ten from which on a sparkline is logarithmic
DAY, HOUR, MINUTE = 86400, 3600, 60


@dataclass(frozen=True)
class Status:
    """A line: `kind` is GOOD, WARNING, BAD or "". `graph` draws what stands behind the text, given columns and bars."""

    name: str
    text: str
    kind: str = ""
    graph: Callable[[int, str], str] | None = None


def status(reader: LogReader, idle: float) -> list[Status]:
    """Return the lines on the last run of a log whose last line is `idle` seconds old."""
    lines: list[Status] = []
    if reader.runs:
        quiet = inf if reader.outcome == "failed" else 0.0
        lines += _training(reader.runs[-1], quiet if reader.outcome else idle)
    else:
        lines.append(Status("iteration", "none yet"))
    if reader.snapshot:
        lines.append(Status("snapshot", one_line(reader.snapshot)))
    lines += [Status(name.lower(), one_line(text)) for name, text in reader.notes.items()]
    return [*lines, *_warnings(reader.warnings), *_outcome(reader, idle)]


def _training(run: LoggedRun, idle: float) -> Iterator[Status]:
    train, speed = run.train, pace(run)
    yield Status("iteration", _progress(run, speed, idle), graph=_bar(run) if run.max_iter else None)
    if len(train):
        if loss := train.own.get(LOSS):
            text = f"{loss[-1]:.6g}"
            yield Status("loss", text, "" if isfinite(loss[-1]) else BAD, lambda width, bars: spark(loss, width, bars))
        if outputs := {name: value for name, value in train.latest()[1].items() if name not in train.weighted}:
            yield Status("train", _values(outputs))
        if rates := train.own.get(RATE):
            yield Status("lr", f"{rates[-1]:.6g}")
    if speed:
        images = f"{run.batch * speed:.4g} images/s, " if run.batch else ""
        yield Status("speed", f"{images}{speed:.4g} iterations/s")
    for k, table in sorted(run.tests.items()):
        iteration, outputs = table.latest()
        if outputs:
            yield Status(f"test {k}", f"{_values(outputs)} in iteration {iteration}")


def _progress(run: LoggedRun, speed: float, idle: float) -> str:
    done = max(run.iteration, 0)
    if not run.max_iter:
        return f"{done}"
    left = max(0.0, (run.max_iter - done) / speed - idle) if speed and not _is_quiet(run, idle) else None
    rest = f", {duration(left)} left" if left is not None and done < run.max_iter else ""
    return f"{done} of {run.max_iter}, {100 * done // run.max_iter}%{rest}"


def pace(run: LoggedRun) -> float:
    """Return the iterations per second over the last rows of the last job, with its tests; 0 if it has too few."""
    iterations, times = run.train.iterations[-PACE_ROWS:], run.train.times[-PACE_ROWS:]
    first = next((k for k, iteration in enumerate(iterations) if iteration >= run.begin), len(iterations))
    if first >= len(iterations) - 1 or times[-1] <= times[first]:
        return 0.0
    return (iterations[-1] - iterations[first]) / (times[-1] - times[first])


def interval(run: LoggedRun) -> float:
    """Return the seconds between the last rows of training, 0 if there are too few."""
    times = run.train.times[-PACE_ROWS:]
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0


def _is_quiet(run: LoggedRun | None, idle: float) -> bool:
    """Return whether a run has logged nothing for so long that it may not go on."""
    return idle >= max(QUIET, QUIET_ROWS * (interval(run) if run else 0.0))


def _warnings(warnings: Sequence[str]) -> Iterator[Status]:
    stalls = [one for one in warnings if one.startswith("Stall: ")]
    for name, kind, lines in (
        ("stalls", BAD, [one.removeprefix("Stall: ") for one in stalls]),
        ("warnings", WARNING, [one for one in warnings if one not in stalls]),
    ):
        if lines:
            yield Status(name, f"{len(lines)}; the last: {one_line(lines[-1])}", kind)


def _outcome(reader: LogReader, idle: float) -> Iterator[Status]:
    if reader.error:
        yield Status("failed", one_line(reader.error), BAD)
    elif reader.outcome:
        yield Status("run", reader.outcome, GOOD)
    elif _is_quiet(reader.runs[-1] if reader.runs else None, idle):
        yield Status("quiet", f"no new line for {duration(idle)}", WARNING)


def _values(outputs: dict[str, float]) -> str:
    return ", ".join(f"{one_line(name)} = {value:.6g}" for name, value in outputs.items())


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: 45 s, 12 min, 3 h 20 min, 2 d 4 h."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    if seconds < HOUR:
        return f"{seconds / MINUTE:.0f} min"
    if seconds < DAY:
        return f"{int(seconds // HOUR)} h {int(seconds % HOUR // MINUTE)} min"
    return f"{int(seconds // DAY)} d {int(seconds % DAY // HOUR)} h"


def _bar(run: LoggedRun) -> Callable[[int, str], str]:
    """Return the drawing of the share of iterations that are done."""

    def draw(width: int, bars: str) -> str:
        done = round(min(width, 30) * min(1.0, max(0, run.iteration) / max(1, run.max_iter)))
        return bars[-1] * done + bars[0] * (min(width, 30) - done)

    return draw


def spark(values: Sequence[float], width: int, bars: str = BARS) -> str:
    """Return a row of at most `width` bars, each the mean of as many values; a space where none of them is finite.

    Heights are logarithmic if the means are positive and differ by more than a power of ten.
    """
    if width < 1 or not len(values):
        return ""
    means = [_mean(part) for part in np.array_split(np.array(values), min(width, len(values)))]
    finite = [one for one in means if isfinite(one)]
    if not finite:
        return ""
    if min(finite) > 0 and log10(max(finite) / min(finite)) > DECADES:
        means = [log10(one) if isfinite(one) else one for one in means]
        finite = [one for one in means if isfinite(one)]
    low, range_ = min(finite), max(finite) - min(finite) or 1.0
    return "".join(bars[round((len(bars) - 1) * (one - low) / range_)] if isfinite(one) else " " for one in means)


def _mean(part: np.ndarray) -> float:
    finite = part[np.isfinite(part)]
    return float(finite.mean()) if len(finite) else float("nan")
