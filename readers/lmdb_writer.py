"""LMDBWriter: writes an LMDB, which gets its name when it is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType

import lmdb

from readers.errors import SourceError, reason
from readers.files import beside

FIRST_MAP = 16 << 20  # bytes; doubled when full, as readers map the size that the file states
CHUNK_BYTES = 16 << 20  # bytes of one transaction

Record = tuple[bytes, bytes]


def write_lmdb(db: str | os.PathLike[str], records: Iterable[Record], replace: bool = False) -> int:
    """Write (key, value) records to the new LMDB folder `db`; return their number.

    See LMDBWriter for `replace` and for errors. `records` may be a generator: about CHUNK_BYTES are in memory.
    """
    with LMDBWriter(db, replace) as writer:
        for chunk in _chunks(records):
            writer.append(chunk)
    return writer.count


class LMDBWriter:
    """Appends records to the new LMDB folder `db`, in a `with` block.

    They are written to a temporary folder beside it, which is renamed at the end of the block, or removed after an
    exception. With `replace` the new database atomically replaces an existing one, whose readers keep the old file.
    Raises SourceError if `db` exists without `replace`, if there are no records, or if `db` can't be written.
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
        """Rename the finished database; in an existing folder replace the file, in one step."""
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
    """Write records in one transaction; double the map while it is full."""
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
