"""Databases of labelled images, of whichever kind."""

from __future__ import annotations

import os

from readers.leveldb_reader import LevelDBReader
from readers.lmdb_reader import LMDBReader


def open_database(source: str | os.PathLike[str]) -> LMDBReader | LevelDBReader:
    """Return a reader of the database folder `source`: a LevelDB has a file CURRENT, an LMDB has data.mdb.

    Raises SourceError for neither, ReaderError for a LevelDB where plyvel is missing.
    """
    is_lmdb = os.path.exists(os.path.join(source, "data.mdb"))
    if not is_lmdb and os.path.exists(os.path.join(source, "CURRENT")):
        return LevelDBReader(source)
    return LMDBReader(source)
