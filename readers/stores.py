"""Stores: new databases that records are appended to, one class for each kind."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any

import lmdb

from readers.errors import ReaderError
from readers.leveldb_reader import leveldb_library

Record = tuple[bytes, bytes]

FIRST_MAP = 16 << 20  # bytes; doubled when full, as readers map the size that the file states
WRITE_BUFFER = 64 << 20  # bytes that a LevelDB collects before it writes a sorted file


class Store(ABC):
    """A database in the folder `folder`, which is made if there is none, open for one writer.

    A transaction is stored whole or not at all. With `sync` it survives a crash of the machine.
    """

    @abstractmethod
    def __init__(self, folder: str, sync: bool): ...

    @staticmethod
    @abstractmethod
    def errors() -> tuple[type[Exception], ...]:
        """Return the exceptions that the methods raise."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of records."""

    @abstractmethod
    def commit(self, records: list[Record]) -> None:
        """Write records in one transaction."""

    def flush(self) -> None:  # noqa: B027  a store may have written everything
        """Write to disk what a crash of the machine would lose."""

    @abstractmethod
    def close(self) -> None:
        """Close the files."""


class LMDBStore(Store):
    """An LMDB. Its map is doubled when it is full."""

    def __init__(self, folder: str, sync: bool):
        path = os.path.join(folder, "data.mdb")
        size = os.path.getsize(path) if os.path.exists(path) else 0
        self._environment = lmdb.open(folder, map_size=max(FIRST_MAP, size), lock=False, sync=sync)

    @staticmethod
    def errors() -> tuple[type[Exception], ...]:
        """Return the exceptions that the methods raise."""
        return OSError, lmdb.Error

    def __len__(self) -> int:
        entries: int = self._environment.stat()["entries"]
        return entries

    def commit(self, records: list[Record]) -> None:
        """Write records in one transaction."""
        while True:
            try:
                with self._environment.begin(write=True) as transaction:
                    transaction.cursor().putmulti(records)
                return
            except lmdb.MapFullError:
                self._environment.set_mapsize(2 * self._environment.info()["map_size"])

    def flush(self) -> None:
        """Write the pages to disk."""
        self._environment.sync(True)

    def close(self) -> None:
        """Close the file."""
        self._environment.close()


class LevelDBStore(Store):
    """A LevelDB, whose every transaction is on disk. Raises ReaderError without plyvel."""

    def __init__(self, folder: str, sync: bool):
        self._database: Any = leveldb_library().DB(folder, create_if_missing=True, write_buffer_size=WRITE_BUFFER)

    @staticmethod
    def errors() -> tuple[type[Exception], ...]:
        """Return the exceptions that the methods raise."""
        return OSError, leveldb_library().Error

    def __len__(self) -> int:
        with self._database.iterator(include_value=False) as keys:
            return sum(1 for _ in keys)

    def commit(self, records: list[Record]) -> None:
        """Write records in one transaction."""
        with self._database.write_batch(transaction=True, sync=True) as batch:
            for key, value in records:
                batch.put(key, value)

    def close(self) -> None:
        """Close the files."""
        self._database.close()


STORES: dict[str, type[Store]] = {"lmdb": LMDBStore, "leveldb": LevelDBStore}


def store_kind(backend: str) -> type[Store]:
    """Return the class of stores of a kind of database. Raises ReaderError for an unknown kind, or without plyvel."""
    if backend not in STORES:
        raise ReaderError(f"unknown backend '{backend}': expected one of {', '.join(STORES)}")
    if backend == "leveldb":
        leveldb_library()
    return STORES[backend]
