"""Write an LMDB so that it appears complete or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator

import lmdb

from readers.errors import SourceError, reason

FIRST_MAP = 16 << 20  # bytes; doubled as needed, since readers map as much as the file says
CHUNK_BYTES = 16 << 20  # bytes written in one transaction

Record = tuple[bytes, bytes]


def write_lmdb(db: str | os.PathLike[str], records: Iterable[Record], replace: bool = False) -> int:
    """Write (key, value) records to the new LMDB folder `db`; return how many there were.

    They are written beside it and renamed at the end. With `replace` an older database gives way to the new
    one in one step, and its readers keep the old one. Raises SourceError if `db` exists otherwise, if there
    are no records or if it can't be written.
    """
    db = os.fspath(db).rstrip("/")
    if os.path.lexists(db) and not replace:
        raise SourceError(f"{db} exists already: remove it or choose another name")
    folder = f"{db}.{secrets.token_hex(4)}.tmp"
    try:
        os.mkdir(folder)
        count = _fill(folder, records)
        if not count:
            raise SourceError(f"{db}: there are no records to write")
        _publish(folder, db)
    except (lmdb.Error, OSError) as error:
        raise SourceError(f"{db}: can't be written: {reason(error)}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return count


def _fill(folder: str, records: Iterable[Record]) -> int:
    """Write the records to a database of which nobody knows yet; return how many."""
    count = 0
    with lmdb.open(folder, map_size=FIRST_MAP, lock=False, sync=False) as environment:
        for chunk in _chunks(records):
            _commit(environment, chunk)
            count += len(chunk)
        environment.sync(True)
    return count


def _commit(environment: lmdb.Environment, chunk: list[Record]) -> None:
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


def _publish(folder: str, db: str) -> None:
    """Give a finished database its name: a folder that exists gets its file exchanged, in one step."""
    if os.path.isdir(db):
        os.replace(os.path.join(folder, "data.mdb"), os.path.join(db, "data.mdb"))
    else:
        os.rename(folder, db)
