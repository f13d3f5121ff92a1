"""pycaffe's log: lines on stderr in glog's format."""

from __future__ import annotations

import operator

from scaffe.monitor import log as logs
from scaffe.parallel.world import launcher_rank


def init_log(level: int = 0) -> None:
    """Send the log to stderr, from this level on: 0 INFO, 1 WARNING, 2 ERROR.

    Without a call it begins with the first line of `log`, or with the first solver, at the level of the environment
    variable GLOG_minloglevel. Ranks other than the root log warnings and errors alone.
    """
    logs.start(launcher_rank(), operator.index(level))


def log(text: str) -> None:
    """Log a text at level INFO, line by line, with the place in the program that calls this."""
    begin()
    for line in str(text).split("\n"):
        logs.log.info("%s", line, stacklevel=2)


def begin() -> None:
    """Send the log to stderr, unless it goes there already."""
    if not logs.log.handlers:
        logs.start(launcher_rank())
