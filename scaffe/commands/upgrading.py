"""scaffe upgrade-net and upgrade-solver: files of Caffe's earlier years in the present form."""

from __future__ import annotations

import argparse

from scaffe.commands.parser import add_command
from scaffe.commands.running import alone
from scaffe.proto.upgrade_files import upgrade_net_file, upgrade_solver_file


def add(commands) -> None:
    """Add both."""
    _add_net(commands)
    _add_solver(commands)


def _add_net(commands) -> None:
    def run(a: argparse.Namespace) -> int:
        return alone(lambda: upgrade_net_file(a.old, a.new))

    text = "Write a net, text or binary, in the present form of Caffe's prototxt."
    caffes = ["upgrade_net_proto_text", "upgrade_net_proto_binary"]
    command = add_command(commands, "upgrade-net", run, text, caffes)
    command.add_argument("old", metavar="IN", help="prototxt or .caffemodel, of any age")
    command.add_argument("new", metavar="OUT", help="binary if its name ends with .caffemodel, text if with .prototxt")


def _add_solver(commands) -> None:
    def run(a: argparse.Namespace) -> int:
        return alone(lambda: upgrade_solver_file(a.old, a.new))

    text = "Write a solver in the present form of Caffe's prototxt."
    command = add_command(commands, "upgrade-solver", run, text, ["upgrade_solver_proto_text"])
    command.add_argument("old", metavar="IN")
    command.add_argument("new", metavar="OUT")
