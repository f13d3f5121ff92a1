"""Atomic writes, locks, temporary names and folders."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import secrets
import stat
from collections.abc import Iterable

from readers.errors import SourceError, reason

Part = bytes | memoryview  # of a file's content


def replace_file(path: str | os.PathLike[str], content: bytes | Iterable[Part]) -> None:
    """Write `content`, or its parts, to `path` atomically: to a temporary file, which is synced to disk and renamed.

    Raises OSError on failure; then the temporary file is removed and an older file at `path` is unchanged. A stream is
    written into: root could replace it, /dev/null for all programs. Any other device fails.
    """
    path = os.fspath(path)
    parts = [content] if isinstance(content, bytes) else content
    if is_stream(path):
        with _open_stream(path) as stream:
            return stream.writelines(parts)
    if is_device(path):
        raise OSError(errno.EINVAL, DEVICE, path)
    unfinished = beside(path)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
    _sync_folder(os.path.dirname(path) or ".")


def lock(descriptor: int) -> None:
    """Lock an open file or folder until it is closed, by this process and those that it forks.

    A file system without locks gives one to everybody. Raises BlockingIOError if another holds it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Return whether `path` is written into, not replaced: a character device, a pipe, or this process's open file."""
    kind = os.stat(path).st_mode if os.path.exists(path) else 0
    return stat.S_ISCHR(kind) or stat.S_ISFIFO(kind) or _own_descriptor(os.fspath(path)) is not None


def _own_descriptor(path: str) -> int | None:
    """Return the number of this process's open file that a name such as /dev/stdout stands for, else None."""
    linked = os.path.join(os.path.dirname(path), os.readlink(path)) if os.path.islink(path) else path
    for folder, name in map(os.path.split, (path, linked)):
        if name.isdigit() and os.path.realpath(folder) == os.path.realpath("/proc/self/fd"):
            return int(name)
    return None


def _open_stream(path: str) -> io.BufferedWriter:
    """Open a stream for writing, without waiting. Raises OSError for a pipe that no program reads from."""
    if (own := _own_descriptor(path)) is not None:
        return open(os.dup(own), "wb")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise OSError(error.errno, UNREAD, path) if error.errno == errno.ENXIO else error from None
    os.set_blocking(descriptor, True)
    return open(descriptor, "wb")


def open_input(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Open a file to read its bytes. Raises OSError; for a device, a named pipe or a socket too, without waiting.

    Those have no end, or none until another program writes. The null device is read, and a shell's pipe <(...).
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        kind = os.fstat(descriptor).st_mode
        is_unnamed = stat.S_ISFIFO(kind) and os.path.realpath(path).startswith("/proc/")
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(kind) and not is_unnamed and os.path.realpath(path) != os.devnull:
            raise OSError(errno.EINVAL, DEVICE, os.fspath(path))
        os.set_blocking(descriptor, True)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_input(path: str | os.PathLike[str]) -> bytes:
    """Return a file's content. Raises OSError as open_input does."""
    with open_input(path) as file:
        return file.read()


DEVICE = "is a device or a pipe; name a file"
UNREAD = "is a pipe that no program reads from"


def is_device(path: str | os.PathLike[str]) -> bool:
    """Return whether something else than a file or folder is at `path`, or at the end of a link there."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def beside(path: str) -> str:
    """Return a temporary name beside `path`: PATH.XXXXXXXXXXXXXXXX.tmp with 16 random hexadecimal digits."""
    return f"{path}.{secrets.token_hex(8)}.tmp"


TEMPORARY = r"\.[0-9a-f]{16}\.tmp"  # the suffix of such a name


def obstacle(path: str | os.PathLike[str]) -> str:
    """Return why nothing can be written at `path`: a device, or no folder to write in; "" if something can.

    A stream, such as /dev/stdout or a pipe, is fine.
    """
    if is_stream(path):
        return ""
    folder = os.path.dirname(os.fspath(path)) or "."
    if is_device(path):
        return DEVICE
    if not os.path.isdir(folder):
        return f"no such folder: {folder}"
    return "" if os.access(folder, os.W_OK) else f"no permission to write in {folder}"


def check_folder_of(path: str | os.PathLike[str]) -> None:
    """Raise SourceError if nothing can be written at `path`, see `obstacle`.

    Long work calls this first, so that it does not fail at its end.
    """
    if why := obstacle(path):
        raise SourceError(f"{path}: {why}")


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
