"""LMDBWriter: writes an LMDB, which gets its name when it is complete."""

from __future__ import annotations

import os
from collections.abc import Iterable

from readers.database_writer import DatabaseWriter, write_database
from readers.stores import Record


def write_lmdb(db: str | os.PathLike[str], records: Iterable[Record], replace: bool = False) -> int:
    """Write (key, value) records to the new LMDB folder `db`, as write_database does; return their number."""
    return write_database(db, records, "lmdb", replace)


class LMDBWriter(DatabaseWriter):
    """A DatabaseWriter of an LMDB."""

    def __init__(self, db: str | os.PathLike[str], replace: bool = False):
        super().__init__(db, "lmdb", replace)
