"""Checksums in snapshots and weights, which detect a change since a file was written.

Each of the four kinds of file ends with a seal: "xxh3_64:" and the hash of all bytes before it, in 16 hexadecimal
digits. In a binary file the seal is the last field of the message, `checksum`; in an HDF5 file it follows the part
that HDF5 reads. The field or root attribute `sealed`, near the beginning of the file, says that there is a seal. Each
blob has its own `checksum`, which locates the damage. Caffe ignores all of these; Caffe's files have none and are read
without a check. So are messages that another program has read, changed and written: protobuf writes `sealed` behind the
lower fields, where the seal follows it at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import xxhash

_MARK = b"xxh3_64:"
LENGTH = len(_MARK) + 16


def of(shape: Sequence[int], *values: Any) -> int:
    """Return the checksum of a blob by its shape and its arrays: values, and gradients if stored (float32)."""
    found = xxhash.xxh3_64(repr(tuple(shape)).encode())
    for part in values:
        found.update(part)
    return found.intdigest()


def seal(parts: Iterable[Any]) -> bytes:
    """Return the seal of a file that consists of `parts`."""
    found = xxhash.xxh3_64()
    for part in parts:
        found.update(part)
    return _MARK + found.hexdigest().encode()


def of_file(content: bytes) -> str:
    """Return the seal at a file's end, "" if there is none."""
    found = content[-LENGTH:]
    return found.decode("latin-1") if found.startswith(_MARK) else ""


def digits(found: str) -> str:
    """Return a seal's digits. With its mark they would be taken for the seal of a file that they end."""
    return found.removeprefix(_MARK.decode())


def is_whole(content: bytes) -> bool | None:
    """Return whether a file's content matches its seal, None if it has no seal."""
    if content[-LENGTH : len(_MARK) - LENGTH] != _MARK:
        return None
    return seal([memoryview(content)[:-LENGTH]]) == content[-LENGTH:]
