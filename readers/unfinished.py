"""ResumableWriter: writes a database whose finished records survive a kill, and which the next run continues."""

from __future__ import annotations

import json
import os
import shutil
from bisect import bisect, insort
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any

from readers.errors import ReaderError, SourceError, reason
from readers.files import lock, replace_file
from readers.sharded_lmdb import shard_name
from readers.stores import Record, Store, store_kind

CHUNK_BYTES = 16 << 20  # bytes of one transaction: the most that a kill loses

Arguments = dict[str, str | int | bool]


class ResumableWriter:
    """Writes `total` records to the new database `db`, or to a folder of `shards` LMDBs, in a `with` block.

    Until it is complete the database is in the folder DB.unfinished, beside `db`, with the `arguments` that it is built
    from. The folder survives a kill or an exception, and the next writer with the same arguments continues it:
    `missing` yields the numbers of the records that are not in it. Records may be left out; the i-th of the others is
    record i // shards of shard i % shards. `backend` is lmdb or leveldb. Raises ReaderError for a LevelDB of several
    shards or without plyvel, SourceError if:

    - `db` exists or can't be written,
    - another process is writing it,
    - the unfinished database has other arguments.
    """

    def __init__(
        self, db: str | os.PathLike[str], total: int, arguments: Arguments, shards: int = 1, backend: str = "lmdb"
    ):
        self.db, self.total, self.shards = os.fspath(db).rstrip("/"), total, shards
        self.folder = f"{self.db}.unfinished"
        self._stored: list[int] = []  # records in each shard
        self._left_out: list[int] = []  # numbers, ascending
        self._noted = 0  # how many of them left_out.json has
        self._arguments: Arguments = {**arguments, "shards": shards, "backend": backend}
        self._kind = store_kind(backend)
        if shards > 1 and backend != "lmdb":
            raise ReaderError(f"only an LMDB has shards: leave out the {shards} shards, or write an LMDB")
        if os.path.lexists(self.db):
            raise SourceError(f"{self.db} exists already: remove it or choose another name")
        if not total:
            raise SourceError(f"{self.db}: there are no records to write")

    def __enter__(self) -> ResumableWriter:
        with self._reported(), ExitStack() as stack:
            self._check_links()
            os.makedirs(self._part(""), exist_ok=True)
            self._lock(stack)
            self._compare()
            self._stores = [self._open(stack, shard) for shard in range(self.shards)]
            self._stored = [len(store) for store in self._stores]
            self._read_left_out()
            self._chunk: list[list[Record]] = [[] for _ in self._stored]
            self._bytes = 0
            self._open_files = stack.pop_all()
        return self

    def _read_left_out(self) -> None:
        """Read which records were left out. A folder without records starts anew: its images may have been mended."""
        path = self._note("left_out.json")
        if not self.done:
            with suppress(FileNotFoundError):
                os.unlink(path)
        self._left_out = list(self._read("left_out.json")) if os.path.exists(path) else []
        self._noted = len(self._left_out)

    @property
    def done(self) -> int:
        """The number of records that survive a kill."""
        return sum(self._stored)

    def missing(self) -> Iterator[int]:
        """Yield the numbers of the records that are missing, ascending."""
        stored, left_out = list(self._stored), set(self._left_out)
        wanted = (number for number in range(self.total) if number not in left_out)
        return (number for i, number in enumerate(wanted) if i // self.shards >= stored[i % self.shards])

    def leave_out(self, number: int) -> None:
        """Leave out the next missing record, `number`."""
        insort(self._left_out, number)

    @property
    def count(self) -> int:
        """The number of records of the complete database: all but those left out so far."""
        return self.total - len(self._left_out)

    def put(self, number: int, record: Record) -> None:
        """Add the next missing record, `number`."""
        place = number - bisect(self._left_out, number)
        self._chunk[place % self.shards].append(record)
        self._bytes += len(record[0]) + len(record[1])
        if self._bytes >= CHUNK_BYTES:
            with self._reported():
                self._commit()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._open_files, self._reported():
            self._commit()
            for store in self._stores:
                store.close()
            if kind is None:
                os.rename(self._part(""), self.db)
        if kind is None or not self.done:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _part(self, name: str) -> str:
        """Return the path in the unfinished folder of the later DB/name."""
        return os.path.join(self.folder, "db", name).rstrip("/")

    def _check_links(self) -> None:
        """Raise SourceError for symbolic links: another user may have made them, to overwrite files elsewhere."""
        within = (os.path.join(top, name) for top, *names in os.walk(self.folder) for name in sum(names, []))
        for path in (self.folder, *within):
            if os.path.islink(path):
                raise SourceError(f"{path} is a symbolic link: remove {self.folder} to start again")

    def _lock(self, stack: ExitStack) -> None:
        """Lock the folder for this process."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_NOFOLLOW)
        stack.callback(os.close, descriptor)
        try:
            lock(descriptor)
        except BlockingIOError:
            raise SourceError(f"{self.folder}: another process is writing this database") from None

    def _compare(self) -> None:
        """Store the arguments; raise SourceError where other arguments are stored."""
        path = self._note("arguments.json")
        if not os.path.exists(path):
            replace_file(path, json.dumps(self._arguments, indent=1).encode())
        stored = {"backend": "lmdb", **self._read("arguments.json")}  # which older folders do not name
        for name in {**stored, **self._arguments}:
            old, new = stored.get(name), self._arguments.get(name)
            if old != new:
                raise SourceError(
                    f"{self.folder} has other arguments: {name} was {old}, now it is {new}; "
                    "complete it with its own, or remove it to start again"
                )

    def _note(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _read(self, name: str) -> Any:
        with open(self._note(name), "rb") as file:
            content = file.read()
        try:
            return json.loads(content)
        except ValueError:
            raise SourceError(f"{self._note(name)} can't be read: remove {self.folder} to start again") from None

    def _open(self, stack: ExitStack, shard: int) -> Store:
        folder = self._part(shard_name(shard, self.shards) if self.shards > 1 else "")
        os.makedirs(folder, exist_ok=True)
        store = self._kind(folder, sync=True)
        stack.callback(store.close)
        return store

    def _commit(self) -> None:
        """Write the records added so far, which then survive a kill and a crash of the machine.

        The list of left-out records is written first: the places of later records depend on it.
        """
        if len(self._left_out) > self._noted:
            replace_file(self._note("left_out.json"), json.dumps(self._left_out).encode())
            self._noted = len(self._left_out)
        for shard, records in enumerate(self._chunk):
            if records:
                self._stores[shard].commit(records)
                self._stored[shard] += len(records)
                self._chunk[shard] = []
        self._bytes = 0

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except self._kind.errors() as error:
            raise SourceError(f"{self.db}: can't be written: {reason(error)}") from None
