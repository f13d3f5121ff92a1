"""LevelDBReader: records of a LevelDB, by index in key order."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterable
from typing import Any

from readers.database import Database, register
from readers.errors import ReaderError, SourceError, reason

STRIDE = 1024  # records between two marks
OWN_FILES = ("LOCK", "LOG", "LOG.old")  # each process that opens a LevelDB writes its own


@register
class LevelDBReader(Database):
    """Reads records of the LevelDB folder `source`, by index in key order.

    LevelDB locks its folder for one process and writes to it. Each reader therefore opens a temporary folder with links
    to the files: the source may be read-only, and any number of processes read it. LevelDB does not store the number of
    records; the constructor counts them. Raises ReaderError without plyvel, SourceError for a source that is no
    LevelDB, is damaged or is empty.
    """

    precedence = 2
    name = "LevelDB"
    mark = "CURRENT (a LevelDB)"

    def __init__(self, source: str | os.PathLike[str]):
        super().__init__(source)
        self._lock = threading.Lock()
        self._cursor: Any = None
        self._marks: list[bytes] = []  # keys of the records 0, STRIDE, 2 * STRIDE, ...
        self._entries = 0
        self._position = 0  # the record under the cursor
        self._count()

    @classmethod
    def opens(cls, source: str) -> bool:
        """Return whether the folder `source` contains a file CURRENT."""
        return os.path.exists(os.path.join(source, "CURRENT"))

    def __len__(self) -> int:
        return self._entries

    def read(self, indices: Iterable[int]) -> list[tuple[bytes, bytes]]:
        """Return the (key, value) of each index, 0 <= index < len(self).

        The cursor steps forward to ascending indices, and seeks the nearest mark before a smaller index. Raises
        IndexError outside the range and SourceError for a damaged database.
        """
        with self._lock:
            cursor = self._cursor or self._open()
            try:
                return [self._item(cursor, index) for index in indices]
            except leveldb_library().Error as error:
                raise SourceError(f"{self.source}: {reason(error)}") from None

    def close(self) -> None:
        """Close the database; a later `read` opens it again."""
        with self._lock:
            if self._cursor is not None:
                self._cursor = None
                self._release()

    def _open(self) -> Any:
        """Open the database in a temporary folder of links; return a cursor on its first record."""
        library = leveldb_library()
        folder = _linked(self.source)
        try:
            database = library.DB(folder, create_if_missing=False, paranoid_checks=True)
        except (library.Error, OSError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise SourceError(f"{self.source}: the LevelDB can't be opened: {_plain(error, folder)}") from None
        self._cursor, self._position = database.raw_iterator(verify_checksums=True), 0
        self._release = weakref.finalize(self, _close, self._cursor, database, folder)
        self._cursor.seek_to_first()
        return self._cursor

    def _count(self) -> None:
        """Count the records and set marks."""
        try:
            cursor = self._open()
            while cursor.valid():
                if self._entries % STRIDE == 0:
                    self._marks.append(cursor.key())
                self._entries += 1
                cursor.next()
        except leveldb_library().Error as error:
            raise SourceError(f"{self.source}: {reason(error)}") from None
        finally:
            self.close()
        if not self._entries:
            raise SourceError(f"{self.source}: the LevelDB holds no records")

    def _item(self, cursor: Any, index: int) -> tuple[bytes, bytes]:
        if not 0 <= index < self._entries:
            raise IndexError(f"{self.source}: record {index} of {self._entries}")
        mark = index // STRIDE
        if not mark * STRIDE <= self._position <= index:
            cursor.seek(self._marks[mark])
            self._position = mark * STRIDE
        for _ in range(index - self._position):
            cursor.next()
        self._position = index
        item: tuple[bytes, bytes] = cursor.item()
        return item


def leveldb_library() -> Any:
    """Return the module plyvel. Raises ReaderError where it is not installed."""
    try:
        import plyvel
    except ImportError:
        raise ReaderError(
            "a LevelDB needs plyvel, which is not installed: pip install 'scaffe[leveldb]', or convert to LMDB"
        ) from None
    return plyvel


def _linked(source: str) -> str:
    """Return a new folder with symbolic links to a LevelDB's files, which may be on another file system."""
    if not os.path.isfile(os.path.join(source, "CURRENT")):
        raise SourceError(f"{source}: expected a LevelDB folder, which holds a file CURRENT")
    folder = tempfile.mkdtemp(prefix="scaffe-leveldb-")
    try:
        for name in set(os.listdir(source)).difference(OWN_FILES):
            os.symlink(os.path.join(os.path.abspath(source), name), os.path.join(folder, name))
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise SourceError(f"{source}: the LevelDB can't be opened: {reason(error)}") from None
    return folder


def _close(cursor: Any, database: Any, folder: str) -> None:
    cursor.close()  # before its database: a search for garbage that finds both closed in another order crashes
    database.close()
    shutil.rmtree(folder, ignore_errors=True)


def _plain(error: Exception, folder: str) -> str:
    """Return the text of an error without the name of the temporary folder."""
    return reason(error).replace(folder + "/", "").replace(folder, "")
