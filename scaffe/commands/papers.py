"""scaffe papers."""

from __future__ import annotations

import argparse

from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone
from scaffe.errors import ScaffeError
from scaffe.papers import lines, place, results, table

RANK = 15


def add(top: Parser) -> None:
    """Add `papers`."""
    text = "Print which figures of the five papers are reproduced, with the numbers of both."
    command = add_command(top, "papers", lambda a: alone(lambda: _print(a)), text)
    command.add_argument("ids", metavar="ID", nargs="*", help="figures such as s-caffe-11, with their checks [all]")
    command.add_argument("--checks", action="store_true", help="print every check, and numbers in full")


def _print(a: argparse.Namespace) -> None:
    found = {result["id"]: result for result in results()}
    if unknown := [one for one in a.ids if one not in found]:
        raise ScaffeError(f"unknown figure '{unknown[0]}'; known: {' '.join(sorted(found, key=place))}")
    chosen = [found[one] for one in a.ids or found]
    for line in lines(chosen) if a.checks or a.ids else table(chosen):
        print(line)
