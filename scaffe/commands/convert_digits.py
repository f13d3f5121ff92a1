"""scaffe convert-digits."""

from __future__ import annotations

import readers
from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone

RANK = 23


def add(top: Parser) -> None:
    """Add `convert-digits`."""
    text = "Make LMDBs of scikit-learn's 1,797 handwritten digits, enlarged to 28x28."
    command = add_command(top, "convert-digits", lambda a: alone(lambda: readers.convert_digits(a.out_dir)), text)
    command.add_argument("out_dir", metavar="OUT_DIR")
