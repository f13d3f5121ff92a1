"""ShardedLMDB: a database striped over several LMDBs, each in a file of its own (swCaffe, section V.B).

A file system that places each file on one disk array reads several files faster than one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from glob import glob, has_magic

import numpy as np

from readers.database import Database, register
from readers.errors import SourceError
from readers.lmdb_reader import LMDBReader

SHARD_NAME = re.compile(r"shard_(\d+)_of_(\d+)_lmdb$")

Key = tuple[int, bytes]  # shard, key in it


@register
class ShardedLMDB(Database):
    """Reads records of the LMDB folders `shards`, by default those of the folder or glob `source`.

    Record i of N shards is record i // N of shard i % N. Raises SourceError for:

    - a shard that can't be read,
    - numbers of records that are not those of stripes of one database,
    - a shard that is missing by the names of the others.
    """

    precedence = 3

    def __init__(self, source: str | os.PathLike[str], shards: Sequence[str] = ()):
        super().__init__(source)
        source, shards = self.source, shards or find_shards(self.source)
        _check_names(source, shards)
        self._shards = [LMDBReader(shard) for shard in shards]
        self._entries = sum(map(len, self._shards))
        for number, shard in enumerate(self._shards):
            expected = -(-(self._entries - number) // len(shards))
            if len(shard) != expected:
                raise SourceError(
                    f"{shard.source}: expected {expected} records in stripe {number} of {len(shards)} with "
                    f"{self._entries} records, got {len(shard)}: these LMDBs are no stripes of one database"
                )

    @classmethod
    def opens(cls, source: str) -> bool:
        """Return whether `source` is a folder with shards, or a glob that matches LMDBs."""
        return bool(find_shards(source))

    def __len__(self) -> int:
        return self._entries

    def read(self, indices: Iterable[int]) -> list[tuple[Key, bytes]]:
        """Return the (key, value) of each index, 0 <= index < len(self); as LMDBReader.read."""
        wanted = np.fromiter(indices, np.int64)
        for index in wanted[(wanted < 0) | (wanted >= self._entries)][:1]:
            raise IndexError(f"{self.source}: record {index} of {self._entries}")
        places, shards = np.divmod(wanted, len(self._shards))
        items: list[tuple[Key, bytes]] = [((0, b""), b"")] * len(wanted)
        for number in np.unique(shards).tolist():
            rows = np.flatnonzero(shards == number)
            found = self._shards[number].read(places[rows].tolist())
            for row, (key, value) in zip(rows.tolist(), found, strict=True):
                items[row] = (number, key), value
        return items

    def describe(self, key: Key) -> str:
        """Return a record's name for messages: its shard and its key there."""
        return self._shards[key[0]].describe(key[1])

    def close(self) -> None:
        """Close the databases; a later `read` opens them again."""
        for shard in self._shards:
            shard.close()


def shard_name(number: int, count: int) -> str:
    """Return the name of a shard's folder, which has the number of shards in it."""
    return f"shard_{number:05d}_of_{count:05d}_lmdb"


def find_shards(source: str) -> list[str]:
    """Return the shards in a folder, or those that a glob matches, in the order of their names."""
    if has_magic(source) and not os.path.exists(source):
        return sorted(glob(source))
    return sorted(path for path in glob(os.path.join(source, "shard_*_lmdb")) if os.path.isdir(path))


def _check_names(source: str, shards: Sequence[str]) -> None:
    """Raise SourceError where by their names a shard is missing, or shards belong to different databases."""
    names = [os.path.basename(os.path.normpath(shard)) for shard in shards]
    for count in {int(match[2]) for match in map(SHARD_NAME.match, names) if match}:
        expected = [shard_name(number, count) for number in range(count)]
        for missing in sorted({*expected}.difference(names))[:1]:
            raise SourceError(f"{source}: expected {count} shards, but there is no {missing}")
        if names != expected:
            raise SourceError(f"{source}: expected the {count} shards of one database, got {len(names)} LMDBs")
