"""scaffe watch."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from math import isfinite

from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.parallel.world import launcher_rank
from scaffe.tools.watch_log import show_once, watch

RANK = 15


def add(top: Parser) -> None:
    """Add `watch`."""
    text = "Follow a run by its log, of scaffe or of Caffe, until it ends: exit with 1 if it failed."
    command = add_command(top, "watch", _watch, text)
    command.add_argument("log", metavar="LOG", help="a file that a run's log is appended to")
    command.flag("once", action="store_true", help="print the present state, and exit")
    command.flag("interval", type=_seconds, default=0.5, metavar="S", help="look each S seconds [0.5]")


def _watch(a: argparse.Namespace) -> int:
    if launcher_rank() != 0:
        return 0
    with nullcontext(sys.stdout) if sys.stdout else open(os.devnull, "w") as out:  # closed, as by >&-
        return show_once(a.log, out) if a.once else watch(a.log, out, a.interval)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if isfinite(seconds) and 0 < seconds <= 3600:
        return seconds
    raise argparse.ArgumentTypeError(f"expected seconds, above 0 and at most 3600, got '{text}'")
