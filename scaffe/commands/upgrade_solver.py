"""scaffe upgrade-solver: solvers of Caffe's earlier years in the present form."""

from __future__ import annotations

import argparse

from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone
from scaffe.files.outputs import check_replaced
from scaffe.proto.kinds import SOLVER
from scaffe.proto.upgrade_files import upgrade_solver_file

RANK = 31


def add(top: Parser) -> None:
    """Add `upgrade-solver`."""
    text = "Write a solver in the present form of Caffe's prototxt."
    caffes = ["upgrade_solver_proto_text"]
    command = add_command(top, "upgrade-solver", lambda a: alone(lambda: _upgrade(a)), text, caffes)
    command.add_argument("old", metavar="IN", help="prototxt, of any age")
    command.add_argument("new", metavar="OUT", help="prototxt to write")


def _upgrade(a: argparse.Namespace) -> None:
    check_replaced("OUT", a.new, [a.old], [SOLVER])
    upgrade_solver_file(a.old, a.new)
