"""scaffe upgrade-net: nets of Caffe's earlier years in the present form."""

from __future__ import annotations

import argparse

from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone
from scaffe.files.outputs import check_replaced
from scaffe.proto.kinds import NET
from scaffe.proto.upgrade_files import FORMS, upgrade_net_file

RANK = 30


def add(top: Parser) -> None:
    """Add `upgrade-net`."""
    text = "Write a net, text or binary, in the present form of Caffe's prototxt."
    caffes = {"upgrade_net_proto_text": ["--form=text"], "upgrade_net_proto_binary": ["--form=binary"]}
    command = add_command(top, "upgrade-net", lambda a: alone(lambda: _upgrade(a)), text, caffes)
    command.add_argument("old", metavar="IN", help="prototxt or .caffemodel, of any age")
    command.add_argument("new", metavar="OUT", help="binary if its name ends with .caffemodel, text if with .prototxt")
    command.flag("form", choices=FORMS, help="form to write, for any name")


def _upgrade(a: argparse.Namespace) -> None:
    check_replaced("OUT", a.new, [a.old], [NET])  # no weights, which may have been trained
    upgrade_net_file(a.old, a.new, a.form)
