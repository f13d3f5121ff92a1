"""scaffe convert-digits."""

from __future__ import annotations

import argparse

import readers
from scaffe.commands.databases import add_backend_flag
from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone

RANK = 23


def add(top: Parser) -> None:
    """Add `convert-digits`."""
    text = "Make databases of scikit-learn's 1,797 handwritten digits, enlarged to 28x28."
    command = add_command(top, "convert-digits", lambda a: alone(lambda: _convert(a)), text)
    command.add_argument("out_dir", metavar="OUT_DIR")
    add_backend_flag(command)


def _convert(a: argparse.Namespace) -> None:
    readers.convert_digits(a.out_dir, a.backend)
