"""Flags of the commands that write databases."""

from __future__ import annotations

from readers.stores import STORES
from scaffe.commands.gflags import Parser

BACKENDS = tuple(STORES)


def add_backend_flag(command: Parser) -> None:
    """Add Caffe's flag for the kind of database, and its other ones."""
    text = "kind of the database to write; leveldb needs the extra leveldb (default: lmdb)"
    command.flag("backend", choices=BACKENDS, default="lmdb", help=text)
    command.add_caffes()
