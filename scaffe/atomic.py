"""Snapshots' files: complete or not there."""

from __future__ import annotations

import os

from readers import replace_file
from scaffe.errors import SnapshotError


def write_atomically(path: str | os.PathLike, content: bytes) -> None:
    """Write a file that appears complete or not at all. Raise SnapshotError where that fails."""
    try:
        replace_file(path, content)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SnapshotError(f"{path}: can't write {len(content)} bytes: {reason}") from None
