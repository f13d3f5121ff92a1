"""Log lines as Caffe's: glog's prefix, so that Caffe's own parse_log.py and extract_seconds.py read them.

Rank 0 writes what it does; other ranks only what is wrong.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime

log = logging.getLogger("scaffe")
LOGGERS = log, logging.getLogger("collectives")


def one_line(text: str) -> str:
    """Return a text whose control characters, from a file's names say, are spelled out: \\n, \\x1b, \\u202e.

    A terminal would obey them, and a line break would look like a line of its own. Tabs stay: Caffe's log has some.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else ascii(c)[1:-1] for c in text)


class GlogFormatter(logging.Formatter):
    """Prefix each line with glog's `I1120 HH:MM:SS.ffffff PID FILE:LINE] `: level, month and day, time."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created)
        return (
            f"{record.levelname[0]}{when:%m%d %H:%M:%S.%f} {os.getpid():5d} "
            f"{record.filename}:{record.lineno}] {one_line(record.getMessage())}"
        )


class _Handler(logging.Handler):
    """Write above a progress bar where there is one, to whatever stderr is at the time."""

    def __init__(self) -> None:
        from tqdm import tqdm  # here: it takes a tenth of the time of `import scaffe`

        super().__init__()
        self._write = tqdm.write

    def emit(self, record: logging.LogRecord) -> None:
        self._write(f"{self.format(record)}\n", file=sys.stderr, end="")  # in one piece: other ranks may write too
        sys.stderr.flush()


def start(rank: int = 0) -> None:
    """Send the log to stderr: all of it from rank 0, warnings from the others."""
    handler = _Handler()
    handler.setFormatter(GlogFormatter())
    for logger in LOGGERS:
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO if rank == 0 else logging.WARNING)


def stop() -> None:
    """Let go of the log, to be started anew by who knows this process's rank better."""
    for logger in LOGGERS:
        logger.handlers = []


def output_lines(outputs: Mapping[str, Iterable[float]], weights: Mapping[str, float]) -> list[str]:
    """Return a line for each value of a net's outputs, with its part in the loss where it has one."""
    lines = []
    for name, values in outputs.items():
        weight = weights.get(name, 0)
        for value in values:
            part = f" (* {weight:g} = {weight * value:.6g} loss)" if weight else ""
            lines.append(f"{name} = {value:.6g}{part}")
    return lines
