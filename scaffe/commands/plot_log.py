"""scaffe plot-log."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone
from scaffe.errors import LogError
from scaffe.files.atomic import write_atomically
from scaffe.files.outputs import check_distinct, check_output
from scaffe.monitor.log import one_line
from scaffe.proto.kinds import PICTURE
from scaffe.tools.log_curves import AXES, faults, named_runs, table_of_numbers
from scaffe.tools.plot_log import SUFFIXES, plot

RANK = 14


def add(top: Parser) -> None:
    """Add `plot-log`."""
    text = "Draw the losses, outputs and learning rates of logs, of scaffe or of Caffe, or write them as CSV."
    command = add_command(top, "plot-log", lambda a: alone(lambda: _plot(a)), text)
    command.add_argument("files", nargs="+", metavar="LOG... OUT.png|.svg|.pdf", help="logs, then the picture")
    command.flag("x", choices=AXES, default=AXES[0], help="what runs along the axis [iterations]")
    text = "panels: loss, lr, speed, or parts of outputs' names [loss, outputs that are no loss, lr]"
    command.flag("what", type=_words, default=[], metavar="A,B", help=text)
    command.flag("names", type=_words, default=[], metavar="A,B", help="the logs' names in the legend [their files']")
    command.flag("smooth", type=_rows, default=0, metavar="N", help="rows of a mean; 1: none [a 20th of the curve's]")
    command.flag("log-scale", action="store_true", help="logarithmic axes of losses and learning rates")
    command.flag("csv", metavar="FILE", help="write the numbers; the picture can then be left out")


def _plot(a: argparse.Namespace) -> None:
    logs, out = _split(a.files, a.csv)
    if out:
        check_output("picture", out, logs, [PICTURE])
    if a.csv:
        check_output("--csv", a.csv, logs)
    check_distinct(**{"picture": out, "--csv": a.csv})
    runs = named_runs(logs, a.names)
    for line in faults(runs):
        print(f"scaffe: {one_line(line)}", file=sys.stderr)
    if out:
        plot(runs, out, x=a.x, what=a.what, window=a.smooth, log_scale=a.log_scale)
    if a.csv:
        write_atomically(a.csv, table_of_numbers(runs).encode())


def _split(files: Sequence[str], csv: str | None) -> tuple[list[str], str]:
    """Return the logs, and the picture's name: the last word if it has a picture's suffix."""
    *logs, last = files
    if last.lower().endswith(tuple(f".{suffix}" for suffix in SUFFIXES)):
        if logs:
            return logs, last
        raise LogError(f"expected logs before the picture's name, {last}")
    if csv:
        return list(files), ""
    raise LogError(
        f"expected the picture's name behind the logs, as in OUT.png; known: {' '.join(SUFFIXES)}; got {last}"
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _rows(text: str) -> int:
    if text.isdecimal() and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a number of rows, 1 or more, got '{text}'")
