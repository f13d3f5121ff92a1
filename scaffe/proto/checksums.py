"""Checksums in snapshots and weights, by which a change since a file was written is noticed.

Each of the four kinds of file ends with a seal: "xxh3_64:" and the hash of all bytes before it, in 16 digits. In a
binary file that is the last field of the message, `checksum`; in an HDF5 file it stands behind what HDF5 looks at. The
field or root attribute `sealed`, near the file's beginning, says that there is one. Each blob has a `checksum` of its
own, which says where the damage is. Caffe skips all of these; its own files, which have none, are read as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import xxhash

_MARK = b"xxh3_64:"
LENGTH = len(_MARK) + 16


def of(shape: Sequence[int], *values: Any) -> int:
    """Return the checksum of a blob of that shape with these values, and gradients where they are stored (float32)."""
    found = xxhash.xxh3_64(repr(tuple(shape)).encode())
    for part in values:
        found.update(part)
    return found.intdigest()


def seal(parts: Iterable[Any]) -> bytes:
    """Return what is to stand behind these parts of a file."""
    found = xxhash.xxh3_64()
    for part in parts:
        found.update(part)
    return _MARK + found.hexdigest().encode()


def is_whole(content: bytes) -> bool | None:
    """Say whether a file's content is what its seal was made of; None where it has no seal."""
    if content[-LENGTH : len(_MARK) - LENGTH] != _MARK:
        return None
    return seal([memoryview(content)[:-LENGTH]]) == content[-LENGTH:]
