"""Databases that take long to write: what is finished survives a kill, and the next run goes on from there."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from bisect import bisect, insort
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any

import lmdb

from readers.errors import SourceError, reason
from readers.files import replace_file
from readers.lmdb_writer import FIRST_MAP, Record, commit
from readers.sharded_lmdb import shard_name

CHUNK_BYTES = 16 << 20  # bytes written in one transaction: what a kill can cost

Arguments = dict[str, str | int | bool]


class ResumableWriter:
    """Write `total` records into the new LMDB `db`, or into a folder of `shards` LMDBs, within a `with` block.

    Until it is complete it grows in the folder DB.unfinished, beside it, which also says what `arguments` it is made
    with. That folder outlives a kill or an exception, and the next writer of the same arguments goes on in it:
    `missing` yields the numbers of the records that are not there. Records may be left out; of the others the i-th
    stands in shard i % shards, at i // shards. Raises SourceError if `db` exists, if it can't be written, if another
    process is at work on it, or if the unfinished one has other arguments.
    """

    def __init__(self, db: str | os.PathLike[str], total: int, arguments: Arguments, shards: int = 1):
        self.db, self.total, self.shards = os.fspath(db).rstrip("/"), total, shards
        self.folder = f"{self.db}.unfinished"
        self._stored: list[int] = []  # records in each shard
        self._left_out: list[int] = []  # numbers, in their order
        self._noted = 0  # how many of them are written down
        self._arguments: Arguments = {**arguments, "shards": shards}
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
            self._left_out = list(self._read("left_out.json")) if os.path.exists(self._note("left_out.json")) else []
            self._noted = len(self._left_out)
            self._environments = [self._open(stack, shard) for shard in range(self.shards)]
            self._stored = [environment.stat()["entries"] for environment in self._environments]
            self._chunk: list[list[Record]] = [[] for _ in self._stored]
            self._bytes = 0
            self._open_files = stack.pop_all()
        return self

    @property
    def done(self) -> int:
        """Number of records that a kill would not cost."""
        return sum(self._stored)

    def missing(self) -> Iterator[int]:
        """Yield the numbers of the records that are to be put, in their order."""
        stored, left_out = list(self._stored), set(self._left_out)
        wanted = (number for number in range(self.total) if number not in left_out)
        return (number for i, number in enumerate(wanted) if i // self.shards >= stored[i % self.shards])

    def leave_out(self, number: int) -> None:
        """Have no record in the place of the next one that is missing."""
        insort(self._left_out, number)

    @property
    def count(self) -> int:
        """Number of records that there are in the end, by what is known so far."""
        return self.total - len(self._left_out)

    def put(self, number: int, record: Record) -> None:
        """Take the next record that is missing."""
        place = number - bisect(self._left_out, number)
        self._chunk[place % self.shards].append(record)
        self._bytes += len(record[0]) + len(record[1])
        if self._bytes >= CHUNK_BYTES:
            with self._reported():
                self._commit()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._open_files, self._reported():
            self._commit()
            if kind is None:
                os.rename(self._part(""), self.db)
        if kind is None or not self.done:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _part(self, name: str) -> str:
        """Return the path of what will be DB/name."""
        return os.path.join(self.folder, "db", name).rstrip("/")

    def _check_links(self) -> None:
        """Refuse symbolic links: others may have put them there, to have files elsewhere overwritten."""
        within = (os.path.join(top, name) for top, *names in os.walk(self.folder) for name in sum(names, []))
        for path in (self.folder, *within):
            if os.path.islink(path):
                raise SourceError(f"{path} is a symbolic link: remove {self.folder} to start anew")

    def _lock(self, stack: ExitStack) -> None:
        """Keep other processes out of the folder, where its file system has locks."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_NOFOLLOW)
        stack.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SourceError(f"{self.folder}: another process is writing this database") from None
        except OSError:
            pass

    def _compare(self) -> None:
        """Write down the arguments, or refuse to go on where those written down are others."""
        path = self._note("arguments.json")
        if not os.path.exists(path):
            replace_file(path, json.dumps(self._arguments, indent=1).encode())
        theirs = dict(self._read("arguments.json"))
        for name in {**theirs, **self._arguments}:
            old, new = theirs.get(name), self._arguments.get(name)
            if old != new:
                raise SourceError(
                    f"{self.folder} is a run's with other arguments: {name} was {old}, now it is {new}; "
                    "finish it with its own, or remove it to start anew"
                )

    def _note(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _read(self, name: str) -> Any:
        with open(self._note(name), "rb") as file:
            content = file.read()
        try:
            return json.loads(content)
        except ValueError:
            raise SourceError(f"{self._note(name)} can't be read: remove {self.folder} to start anew") from None

    def _open(self, stack: ExitStack, shard: int) -> lmdb.Environment:
        folder = self._part(shard_name(shard, self.shards) if self.shards > 1 else "")
        os.makedirs(folder, exist_ok=True)
        size = max(FIRST_MAP, _size(os.path.join(folder, "data.mdb")))
        return stack.enter_context(lmdb.open(folder, map_size=size, lock=False))

    def _commit(self) -> None:
        """Write the records taken so far: from here on they survive a kill, and the machine's end too.

        First which were left out: the places of those behind them depend on that.
        """
        if len(self._left_out) > self._noted:
            replace_file(self._note("left_out.json"), json.dumps(self._left_out).encode())
            self._noted = len(self._left_out)
        for shard, records in enumerate(self._chunk):
            if records:
                commit(self._environments[shard], records)
                self._stored[shard] += len(records)
                self._chunk[shard] = []
        self._bytes = 0

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (lmdb.Error, OSError) as error:
            raise SourceError(f"{self.db}: can't be written: {reason(error)}") from None


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0
