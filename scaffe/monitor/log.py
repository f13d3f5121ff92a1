"""Log lines in glog's format, so that Caffe's own parse_log.py and extract_seconds.py read them.

Rank 0 logs everything; other ranks log warnings and errors only. A line of several instances of a rank is logged once.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

from scaffe.monitor.spans import instance_of

log = logging.getLogger("scaffe")
LOGGERS = log, logging.getLogger("collectives")
GLOG_LEVELS = logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL


class OfOneInstance(logging.Filter):
    """Pass a line that several instances of a rank log from the first of them alone."""

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[str, str | None] = {}  # the thread that logged a line first

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a line."""
        if instance_of(record.threadName or "") is None:
            return True
        return self._first.setdefault(record.getMessage(), record.threadName) == record.threadName


for _logger in LOGGERS:
    _logger.addFilter(OfOneInstance())


def one_line(text: str) -> str:
    r"""Return the text with its control characters escaped: \n, \x1b, \u202e. Tabs stay, as in Caffe's log.

    File names, for example, may hold such characters. A terminal would execute an escape sequence, and a line break
    would look like a separate log line.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else ascii(c)[1:-1] for c in text)


class GlogFormatter(logging.Formatter):
    """Prefix each line with glog's `I1120 HH:MM:SS.ffffff PID FILE:LINE] `: level, month and day, time."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the log line, without a line break. Its time is that of writing, so that the threads' lines rise."""
        when = datetime.now()
        return (
            f"{record.levelname[0]}{when:%m%d %H:%M:%S.%f} {os.getpid():5d} "
            f"{record.filename}:{record.lineno}] {one_line(record.getMessage())}"
        )


class _Handler(logging.Handler):
    """Write to the current sys.stderr, above a progress bar if one is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        # One write per line: other ranks may write to the same terminal.
        line = f"{self.format(record)}\n"
        if bar := getattr(sys.modules.get("tqdm"), "tqdm", None):  # which another thread may be importing
            bar.write(line, file=sys.stderr, end="")
        else:  # no bar was ever shown
            sys.stderr.write(line)
        sys.stderr.flush()


def start(rank: int = 0, level: int | None = None) -> None:
    """Send the log to stderr: every line on rank 0, warnings and errors on the others.

    Lines below `level` are left out: one of glog's numbers, 0 INFO to 3 FATAL, by default that of GLOG_minloglevel.
    """
    if level is None:
        level = _environments_level()
    least = max(GLOG_LEVELS[min(max(level, 0), len(GLOG_LEVELS) - 1)], logging.INFO if rank == 0 else logging.WARNING)
    handler = _Handler()
    handler.setFormatter(GlogFormatter())
    for logger in LOGGERS:
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(least)


def follow(rank: int) -> None:
    """Leave out lines below warnings on ranks other than 0, where the log began before the rank was known."""
    if rank:
        for logger in LOGGERS:
            logger.setLevel(max(logger.level, logging.WARNING))


def _environments_level() -> int:
    """Return the level of glog's environment variable, 0 where it has none that is a number."""
    given = os.environ.get("GLOG_minloglevel", "")  # noqa: SIM112  glog's spelling
    return int(given) if given.isdecimal() else 0


@contextmanager
def started(rank: int) -> Iterator[None]:
    """Send the log to stderr for a while, as `start` does; one that goes there already goes on as before.

    For lines that are logged before the rank is known from MPI, by which `start` is called then.
    """
    if log.handlers:
        yield
        return
    start(rank)
    yield
    for logger in LOGGERS:
        logger.handlers = []


def output_lines(outputs: Mapping[str, Iterable[float]], weights: Mapping[str, float]) -> list[str]:
    """Return one line for each value of a net's outputs, with its part of the loss if it has a loss weight.

    `outputs` holds each output blob's values by name, `weights` the loss weights by blob name.
    """
    lines = []
    for name, values in outputs.items():
        weight = weights.get(name, 0)
        for value in values:
            part = f" (* {weight:g} = {weight * value:.6g} loss)" if weight else ""
            lines.append(f"{name} = {value:.6g}{part}")
    return lines
