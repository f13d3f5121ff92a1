"""scaffe draw-net."""

from __future__ import annotations

import argparse

from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone
from scaffe.files.outputs import check_replaced
from scaffe.proto.kinds import PICTURE
from scaffe.tools import draw

RANK = 33


def add(top: Parser) -> None:
    """Add `draw-net`."""

    def run(a: argparse.Namespace) -> int:
        return alone(lambda: _draw(a))

    command = add_command(top, "draw-net", run, "Draw a net's layers and blobs by graphviz.")
    command.add_argument("net", metavar="NET", help="net prototxt")
    command.add_argument("out", metavar="OUT", help="OUT.png, .svg, .pdf or .jpg; OUT.dot needs no program")
    command.flag("rankdir", choices=draw.RANKDIRS, default="TB", help="where the picture goes: TB is top to bottom")
    command.flag("phase", choices=tuple(draw.PHASES), default="ALL", help="draw the layers of one phase alone")
    command.flag("display-lrm", action="store_true", help="draw the multipliers of the learning rate")


def _draw(a: argparse.Namespace) -> None:
    check_replaced("picture", a.out, [a.net], [PICTURE])
    draw.draw_net(a.net, a.out, a.rankdir, a.phase, a.display_lrm)
