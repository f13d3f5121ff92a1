"""Flags of the commands that write databases."""

from __future__ import annotations

from scaffe.commands.gflags import Parser


def add_backend_flag(command: Parser) -> None:
    """Add Caffe's flag for the kind of database, of which there is one, and its other ones."""
    command.flag("backend", choices=("lmdb",), default="lmdb", help="as in Caffe; only LMDBs are written")
    command.add_caffes()
