"""Databases of labelled images, of whichever kind."""

from __future__ import annotations

import os

from readers.errors import SourceError, reason
from readers.leveldb_reader import LevelDBReader
from readers.lmdb_reader import LMDBReader
from readers.sharded_lmdb import ShardedLMDB, find_shards
from readers.synthetic import PREFIX, SyntheticReader

Database = LMDBReader | LevelDBReader | ShardedLMDB | SyntheticReader


def open_database(source: str | os.PathLike[str]) -> Database:
    """Return a reader of `source`: a database's folder, or one that is made up.

    Stripes of one database are named by the folder that holds them or by a glob, made up records by `synthetic:` and
    what SyntheticReader takes. A LevelDB has a file CURRENT, an LMDB has data.mdb. Raises SourceError for none of
    these, ReaderError for a LevelDB where plyvel is missing.
    """
    source = os.fspath(source)
    if source.startswith(PREFIX):
        return SyntheticReader(source)
    if os.path.exists(os.path.join(source, "data.mdb")):
        return LMDBReader(source)
    if os.path.exists(os.path.join(source, "CURRENT")):
        return LevelDBReader(source)
    if shards := find_shards(source):
        return ShardedLMDB(source, shards)
    raise SourceError(f"{source}: {_why_none(source)}")


def _why_none(source: str) -> str:
    """Return why there is no database of any kind."""
    if os.path.isfile(source):
        return "expected a database's folder, got a file"
    try:
        os.listdir(source)
    except OSError as error:
        where = "" if os.path.isabs(source) else f" (relative to {os.getcwd()})"
        return f"the LMDB or LevelDB can't be opened: {reason(error)}{where}"
    return "expected a folder with data.mdb, an LMDB's, or CURRENT, a LevelDB's, got one without them"
