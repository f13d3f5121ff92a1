"""scaffe timeline."""

from __future__ import annotations

import argparse

from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone
from scaffe.files.outputs import check_output
from scaffe.monitor.log import one_line
from scaffe.proto.kinds import PICTURE
from scaffe.timeline import advice
from scaffe.timeline.overlap import summarise
from scaffe.timeline.plot import plot
from scaffe.timeline.trace import read_trace

RANK = 13


def add(top: Parser) -> None:
    """Add `timeline`."""
    text = "Print how much communication was hidden in a run that wrote a timeline, and what to try."
    command = add_command(top, "timeline", lambda a: alone(lambda: _print(a)), text)
    command.add_argument("file", metavar="FILE.json", help="what scaffe train --timeline wrote")
    command.flag("plot", metavar="OUT.png", help="draw one typical iteration of all ranks (extra: plot)")


def _print(a: argparse.Namespace) -> None:
    if a.plot:
        check_output("--plot", a.plot, [a.file], [PICTURE])
    summary = summarise(read_trace(a.file))
    for line in advice.lines(summary):
        print(one_line(line))
    if a.plot:
        plot(summary, a.plot)
