"""Databases of labelled images, of whichever kind."""

from __future__ import annotations

import os

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
    shards = find_shards(source)
    return ShardedLMDB(source, shards) if shards else LMDBReader(source)
