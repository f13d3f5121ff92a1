"""DatabaseWriter: writes an LMDB or a LevelDB, which gets its name when it is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType

from readers.errors import SourceError, reason
from readers.files import beside
from readers.stores import Record, store_kind

CHUNK_BYTES = 16 << 20  # bytes of one transaction


def write_database(
    db: str | os.PathLike[str], records: Iterable[Record], backend: str = "lmdb", replace: bool = False
) -> int:
    """Write (key, value) records to the new database folder `db`; return their number.

    See DatabaseWriter for `backend`, `replace` and errors. `records` may be a generator: about CHUNK_BYTES are in
    memory.
    """
    with DatabaseWriter(db, backend, replace) as writer:
        for chunk in _chunks(records):
            writer.append(chunk)
    return writer.count


class DatabaseWriter:
    """Appends records to the new database folder `db` in a `with` block; `backend` is lmdb or leveldb.

    They are written to a temporary folder beside it, which is renamed at the end of the block, or removed after an
    exception. With `replace` a new LMDB atomically replaces an existing one, whose readers keep the old file; a
    LevelDB, which is several files, replaces nothing. Raises SourceError if `db` exists and is not replaced, if there
    are no records, or if `db` can't be written; ReaderError for a LevelDB without plyvel.
    """

    def __init__(self, db: str | os.PathLike[str], backend: str = "lmdb", replace: bool = False):
        self.db = os.fspath(db).rstrip("/")
        self.count = 0
        self._kind = store_kind(backend)
        if os.path.lexists(self.db) and not (replace and backend == "lmdb"):
            raise SourceError(f"{self.db} exists already: remove it or choose another name")
        self._folder = beside(self.db)

    def __enter__(self) -> DatabaseWriter:
        with self._reported():
            os.mkdir(self._folder)
            self._store = self._kind(self._folder, sync=False)
        return self

    def append(self, records: list[Record]) -> None:
        """Write records in one transaction."""
        with self._reported():
            self._store.commit(records)
        self.count += len(records)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            with self._reported():
                if kind is None:
                    self._store.flush()
                self._store.close()
                if kind is None:
                    self._publish()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _publish(self) -> None:
        """Rename the finished database; in an existing LMDB's folder replace the file, in one step."""
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
        except self._kind.errors() as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise SourceError(f"{self.db}: can't be written: {reason(error)}") from None


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
