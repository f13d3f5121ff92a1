"""Files that appear complete or not at all."""

from __future__ import annotations

import contextlib
import os

from scaffe.errors import SnapshotError


def write_atomically(path: str | os.PathLike, content: bytes) -> None:
    """Write `content` under a temporary name beside `path`, sync it to disk and rename it.

    Raise SnapshotError where that fails: nothing is left behind, and an older file of that name survives.
    """
    path = os.fspath(path)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(os.path.dirname(path) or ".")
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        reason = (error.strerror or str(error)).lower()
        raise SnapshotError(f"{path}: can't write {len(content)} bytes: {reason}") from None


def _sync_folder(folder: str) -> None:
    """Make a rename durable, where the file system lets folders be synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
