"""Atomic writes, temporary names and folders."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable

from readers.errors import SourceError, reason

Part = bytes | memoryview  # of a file's content


def replace_file(path: str | os.PathLike[str], content: bytes | Iterable[Part]) -> None:
    """Write `content`, or its parts, to `path` atomically: to a temporary file, which is synced to disk and renamed.

    Raises OSError on failure; then the temporary file is removed and an older file at `path` is unchanged. A device or
    pipe fails too: root would replace it, /dev/null for all programs.
    """
    path = os.fspath(path)
    if is_device(path):
        raise OSError(errno.EINVAL, DEVICE, path)
    unfinished = beside(path)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
    _sync_folder(os.path.dirname(path) or ".")


DEVICE = "is a device or a pipe; name a file"


def is_device(path: str | os.PathLike[str]) -> bool:
    """Return whether something else than a file or folder is at `path`, or at the end of a link there."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def beside(path: str) -> str:
    """Return a temporary name beside `path`: PATH.XXXXXXXXXXXXXXXX.tmp with 16 random hexadecimal digits."""
    return f"{path}.{secrets.token_hex(8)}.tmp"


TEMPORARY = r"\.[0-9a-f]{16}\.tmp"  # the suffix of such a name


def check_folder_of(path: str | os.PathLike[str]) -> None:
    """Raise SourceError if `path` is a device, or its folder does not exist or is not writable.

    Long work calls this first, so that it does not fail at its end.
    """
    folder = os.path.dirname(os.fspath(path)) or "."
    if is_device(path):
        raise SourceError(f"{path}: {DEVICE}")
    if not os.path.isdir(folder):
        raise SourceError(f"{path}: no such folder: {folder}")
    if not os.access(folder, os.W_OK):
        raise SourceError(f"{path}: no permission to write in {folder}")


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder unless it exists. Raises SourceError if it can't be made."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise SourceError(f"{path}: can't be made: {reason(error)}") from None


def _sync_folder(folder: str) -> None:
    """Sync a folder to disk after a rename, where the file system supports that."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
