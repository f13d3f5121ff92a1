"""Write an LMDB so that it appears complete or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType

import lmdb

from readers.errors import SourceError, reason
from readers.files import beside

FIRST_MAP = 16 << 20  # bytes; doubled as needed, since readers map as much as the file says
CHUNK_BYTES = 16 << 20  # bytes written in one transaction

Record = tuple[bytes, bytes]


def write_lmdb(db: str | os.PathLike[str], records: Iterable[Record], replace: bool = False) -> int:
    """Write (key, value) records to the new LMDB folder `db`; return how many there were.

    `replace` and errors are LMDBWriter's. The records may be made one by one: few are held at a time.
    """
    with LMDBWriter(db, replace) as writer:
        for chunk in _chunks(records):
            writer.append(chunk)
    return writer.count


class LMDBWriter:
    """Append records to the new LMDB folder `db`, within a `with` block at whose end it appears.

    They are written beside it and renamed then; after an exception nothing is left. With `replace` an older
    database gives way to the new one in one step, and its readers keep the old one. Raises SourceError if `db`
    exists otherwise, if there are no records or if it can't be written.
    """

    def __init__(self, db: str | os.PathLike[str], replace: bool = False):
        self.db = os.fspath(db).rstrip("/")
        self.count = 0
        if os.path.lexists(self.db) and not replace:
            raise SourceError(f"{self.db} exists already: remove it or choose another name")
        self._folder = beside(self.db)

    def __enter__(self) -> LMDBWriter:
        with self._reported():
            os.mkdir(self._folder)
            self._environment = lmdb.open(self._folder, map_size=FIRST_MAP, lock=False, sync=False)
        return self

    def append(self, records: list[Record]) -> None:
        """Write records in one transaction."""
        with self._reported():
            commit(self._environment, records)
        self.count += len(records)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            with self._reported():
                if kind is None:
                    self._environment.sync(True)
                self._environment.close()
                if kind is None:
                    self._publish()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _publish(self) -> None:
        """Give the finished database its name: a folder that exists gets its file exchanged, in one step."""
        if not self.count:
            raise SourceError(f"{self.db}: there are no records to write")
        if os.path.isdir(self.db):
            os.replace(os.path.join(self._folder, "data.mdb"), os.path.join(self.db, "data.mdb"))
        else:
            os.rename(self._folder, self.db)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (lmdb.Error, OSError) as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise SourceError(f"{self.db}: can't be written: {reason(error)}") from None


def commit(environment: lmdb.Environment, chunk: list[Record]) -> None:
    """Write records in one transaction, with a larger map if this one is full."""
    while True:
        try:
            with environment.begin(write=True) as transaction:
                transaction.cursor().putmulti(chunk)
            return
        except lmdb.MapFullError:
            environment.set_mapsize(2 * environment.info()["map_size"])


def _chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield the records in lists of about CHUNK_BYTES."""
    chunk: list[Record] = []
    size = 0
    for key, value in records:
        chunk.append((key, value))
        size += len(key) + len(value)
        if size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
