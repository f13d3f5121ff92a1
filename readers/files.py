"""Files that appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets

from readers.errors import SourceError, reason


def replace_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` under a temporary name beside `path`, sync it to disk and rename it.

    Raises OSError where that fails: nothing is left behind then, and an older file of that name survives.
    """
    path = os.fspath(path)
    unfinished = beside(path)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
    _sync_folder(os.path.dirname(path) or ".")


def beside(path: str) -> str:
    """Return a temporary name beside `path`, which nobody can foresee: PATH.16 digits.tmp, see TEMPORARY."""
    return f"{path}.{secrets.token_hex(8)}.tmp"


TEMPORARY = r"\.[0-9a-f]{16}\.tmp"  # what such a name adds


def check_folder_of(path: str | os.PathLike[str]) -> None:
    """Raise SourceError if `path` can't be written since its folder is not there or not ours to write to.

    This is for work that takes long and would only find that out at its end.
    """
    folder = os.path.dirname(os.fspath(path)) or "."
    if not os.path.isdir(folder):
        raise SourceError(f"{path}: no such folder: {folder}")
    if not os.access(folder, os.W_OK):
        raise SourceError(f"{path}: no permission to write in {folder}")


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder unless it is there. Raises SourceError if it can't be made."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise SourceError(f"{path}: can't be made: {reason(error)}") from None


def _sync_folder(folder: str) -> None:
    """Make a rename durable, where the file system lets folders be synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
