"""scaffe inspect-db."""

from __future__ import annotations

import argparse

import readers
from readers.contact_sheet import draw_contact_sheet
from readers.survey import survey
from readers.threads import check_threads
from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone
from scaffe.files.outputs import check_replaced
from scaffe.monitor.log import one_line
from scaffe.proto.kinds import PICTURE

RANK = 24


def add(top: Parser) -> None:
    """Add `inspect-db`."""
    text = "Decode every record of a database and print its shapes and labels; exit with 2 if a record is bad."
    command = add_command(top, "inspect-db", lambda a: alone(lambda: _inspect(a)), text)
    command.add_argument("db", metavar="DB", help="LMDB, LevelDB, or a folder or glob of LMDBs that are stripes of one")
    command.flag("plot", metavar="OUT.png", help="draw images from all over the database, with their labels")
    command.flag("images", type=int, default=60, metavar="N", help="images that --plot draws (default: 60)")
    command.flag("rgb", action="store_true", help="draw channels as R G B, such as CIFAR-10's, instead of B G R")
    command.flag("threads", type=int, default=0, metavar="N", help="threads that decode; 0: one for each core")


def _inspect(a: argparse.Namespace) -> None:
    if a.images < 1:
        raise readers.ReaderError(f"--images must be 1 or more, got {a.images}")
    check_threads("--threads", a.threads)
    if a.plot:
        check_replaced("--plot", a.plot, [a.db], [PICTURE])
    with readers.open_database(a.db) as source:
        if a.plot:
            draw_contact_sheet(source, a.plot, a.images, a.rgb)
        found = survey(source, a.threads, progress=True)
    for line in found.lines():
        print(one_line(line))
    if found.bad:
        raise readers.RecordError(f"{len(found.bad):,} of {found.records:,} records are bad; the first: {found.bad[0]}")
