"""LMDBReader: records of an LMDB, by index in key order."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from weakref import WeakValueDictionary, finalize

import lmdb

from readers.database import Database, register
from readers.errors import SourceError, reason
from readers.files import open_input

STRIDE = 1024  # records between two marks

# A meta page: a header of 16 bytes, magic, version, address and size of the map, the descriptions of the free and the
# main database (48 bytes each), last page, transaction. All numbers have the machine's byte order.
MAGIC = 0xBEEFC0DE
HEADER = 16
META = struct.Struct("=II16xI44x32xQ8xQQ")  # magic, version, page size, entries, last page, transaction


@register
class LMDBReader(Database):
    """Reads records of the LMDB folder `source`, by index in key order.

    The constructor checks the file; the first `read` maps it, after a fork, in the process that reads. Readers of one
    file share its map. There is no lock file and no reader table: any number of processes read the file, also from a
    read-only folder, but no process may write to it meanwhile. Raises SourceError for a source that is no LMDB, is
    empty or is truncated; LMDB itself would end the process with a bus error.
    """

    precedence = 1
    name = "LMDB"
    mark = "data.mdb (an LMDB)"

    def __init__(self, source: str | os.PathLike[str]):
        super().__init__(source)
        self._stamp, meta = _look(self.source)
        self._entries, self._transaction = meta.entries, meta.transaction
        self._lock = threading.Lock()
        self._cursor: lmdb.Cursor | None = None
        self._marks: list[bytes] = []  # keys of the records 0, STRIDE, 2 * STRIDE, ..., as far as known
        self._position = 0  # the record under the cursor
        self._map: _Map | None = None

    @classmethod
    def opens(cls, source: str) -> bool:
        """Return whether the folder `source` contains a data.mdb."""
        return os.path.exists(os.path.join(source, "data.mdb"))

    def __len__(self) -> int:
        return self._entries

    def read(self, indices: Iterable[int]) -> list[tuple[bytes, bytes]]:
        """Return the (key, value) of each index, 0 <= index < len(self).

        The cursor steps forward to ascending indices, and seeks the nearest mark before a smaller index. Raises
        IndexError outside the range, SourceError for a database that is damaged or has changed since it was opened.
        """
        try:
            with self._lock:
                cursor = self._cursor or self._open()
                self._check_unchanged()
                return [self._item(cursor, index) for index in indices]
        except (lmdb.Error, OSError) as error:
            raise SourceError(f"{self.source}: {reason(error)}") from None

    def close(self) -> None:
        """Close the database; a later `read` opens it again."""
        with self._lock:
            self._cursor = self._map = None

    def _open(self) -> lmdb.Cursor:
        _look(self.source)
        self._map = _open_shared(self.source)
        self._check_unchanged()
        cursor = self._map.environment.begin().cursor()
        cursor.first()
        self._cursor, self._position, self._marks = cursor, 0, [bytes(cursor.key())]
        return cursor

    def _check_unchanged(self) -> None:
        """Raise SourceError where the file has changed: LMDB would end the process, or return other records.

        Takes one system call for a batch of records. A write changes the file's size or time; a write through a map
        changes LMDB's transaction. Not detected: a change while records are copied, and one within the clock's
        resolution after the constructor.
        """
        assert self._map is not None
        same = _stamp(self._map.descriptor) == self._stamp
        if same and self._map.environment.info()["last_txnid"] == self._transaction:
            return
        _check(self._map.descriptor, self.source)  # truncated?
        raise SourceError(f"{self.source}: the LMDB has changed since this run began: start again")

    def _item(self, cursor: lmdb.Cursor, index: int) -> tuple[bytes, bytes]:
        if not 0 <= index < self._entries:
            raise IndexError(f"{self.source}: record {index} of {self._entries}")
        if index != self._position:
            self._seek(cursor, index)
        key, value = cursor.item()
        return bytes(key), bytes(value)

    def _seek(self, cursor: lmdb.Cursor, index: int) -> None:
        """Move the cursor to a record, from its position or from the last known mark, whichever is nearer."""
        if index == self._position + 1 and index % STRIDE:
            cursor.next()
            self._position = index
            return
        mark = min(index // STRIDE, len(self._marks) - 1)
        if not mark * STRIDE <= self._position <= index:
            cursor.set_key(self._marks[mark])
            self._position = mark * STRIDE
        while self._position < index:
            target = min(index, (self._position // STRIDE + 1) * STRIDE)
            _walk(cursor, target - self._position)
            self._position = target
            if target == len(self._marks) * STRIDE:
                self._marks.append(bytes(cursor.key()))


@dataclass(frozen=True)
class Meta:
    """The numbers of a meta page."""

    page_size: int
    entries: int
    last_page: int
    transaction: int


def _look(source: str) -> tuple[Stamp, Meta]:
    """Return the size and time of an LMDB folder's file, and its newest meta page.

    Raises SourceError for a file that is missing, not readable, no LMDB, truncated or empty.
    """
    try:
        with open_input(os.path.join(source, "data.mdb")) as file:
            return _stamp(file.fileno()), _check(file.fileno(), source)
    except (OSError, ValueError) as error:
        raise SourceError(_unopened(source, error)) from None


Stamp = tuple[int, int]


def _stamp(descriptor: int) -> Stamp:
    """Return the size of a file in bytes, and the time of its last modification in ns."""
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


def _check(descriptor: int, source: str) -> Meta:
    path = os.path.join(source, "data.mdb")
    size = os.fstat(descriptor).st_size
    first = _parse(os.pread(descriptor, HEADER + META.size, 0))
    if first is None:
        raise SourceError(f"{path}: not an LMDB data file ({size} bytes)")
    second = _parse(os.pread(descriptor, HEADER + META.size, first.page_size))
    meta = max((page for page in (first, second) if page), key=lambda page: page.transaction)
    needed = (meta.last_page + 1) * meta.page_size
    if size < needed:
        raise SourceError(f"{path}: truncated: {size} of {needed} bytes are there; copy or build it again")
    if meta.entries == 0:
        raise SourceError(f"{source}: the LMDB holds no records")
    return meta


def _walk(cursor: lmdb.Cursor, steps: int) -> None:
    """Move the cursor forward by `steps`, in one call. An iterator begins with the cursor's own record."""
    if steps == 1:
        cursor.next()
    else:
        next(islice(cursor.iternext(values=False), steps, None), None)


def _parse(page: bytes) -> Meta | None:
    """Return the numbers of a meta page; None where the bytes are no meta page."""
    if len(page) < HEADER + META.size:
        return None
    magic, _version, page_size, entries, last_page, transaction = META.unpack_from(page, HEADER)
    return Meta(page_size, entries, last_page, transaction) if magic == MAGIC else None


def _unopened(source: str, error: Exception) -> str:
    """Return the message for an LMDB whose file can't be opened."""
    if os.path.isfile(source):
        return f"{source}: expected an LMDB folder, which holds a data.mdb, got a file"
    if os.path.exists(os.path.join(source, "CURRENT")):
        return f"{source}: a LevelDB, not an LMDB: convert it, or build the LMDB from the images"
    if os.path.isdir(source) and isinstance(error, FileNotFoundError):
        return f"{source}: expected an LMDB folder, got one without a data.mdb"
    where = "" if os.path.isabs(source) else f" (relative to {os.getcwd()})"
    return f"{source}: the LMDB can't be opened: {reason(error)}{where}"


class _Map:
    """The LMDB file of a folder, mapped, and a file descriptor for its size and time."""

    def __init__(self, source: str):
        path = os.path.join(source, "data.mdb")
        self.descriptor = os.open(path, os.O_RDONLY)
        finalize(self, os.close, self.descriptor)
        self.environment = lmdb.open(source, readonly=True, lock=False, create=False)
        if not os.path.samestat(os.stat(path), os.fstat(self.descriptor)):
            raise SourceError(f"{source}: the LMDB was replaced while it was opened: start again")


# LMDB must not open a file twice in one process: readers share its map, which is closed with the last of them.
_maps: WeakValueDictionary[tuple[int, int, int], _Map] = WeakValueDictionary()
_opening = threading.Lock()


def _open_shared(source: str) -> _Map:
    """Return the map of the file of `source`, which is opened unless this process has it open already."""
    file = os.stat(os.path.join(source, "data.mdb"))
    identity = (os.getpid(), file.st_dev, file.st_ino)
    with _opening:
        mapped = _maps.get(identity)
        if mapped is None:
            mapped = _maps[identity] = _Map(source)
        return mapped
