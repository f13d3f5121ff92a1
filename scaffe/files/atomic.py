"""Files that appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Sequence

from readers import replace_file
from readers.files import TEMPORARY, Part, obstacle
from scaffe.errors import ScaffeError, SnapshotError
from scaffe.monitor.log import log


def write_atomically(path: str | os.PathLike[str], content: bytes | Iterable[Part]) -> None:
    """Write `content`, or its parts, to a file that appears complete or not at all. Raise SnapshotError otherwise."""
    parts = [content] if isinstance(content, bytes) else content
    try:
        replace_file(path, parts)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        what = f" {sum(map(len, parts))} bytes" if isinstance(parts, Sequence) else ""
        raise SnapshotError(f"{path}: can't write{what}: {reason}") from None


def remove_unfinished(folder: str, name: str) -> None:
    """Remove the files that killed processes have not finished, of names that match this regular expression.

    Nobody else may write such a file: the caller holds its lock.
    """
    pattern = re.compile(name + TEMPORARY)
    for found in filter(pattern.fullmatch, os.listdir(folder or ".")):
        log.info("Removing %s, which was never finished", os.path.join(folder or ".", found))
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder or ".", found))


def check_writable(what: str, path: str | os.PathLike[str]) -> None:
    """Raise ScaffeError, which names `what` is to be written, if no file can be: now, not during or after the run.

    A stream, such as /dev/stdout or a pipe, is fine.
    """
    if why := "is a folder; name a file" if os.path.isdir(path) else obstacle(path):
        raise ScaffeError(f"{what} '{path}': {why}")
