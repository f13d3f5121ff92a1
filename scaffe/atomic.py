"""Files that appear complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence

from readers import replace_file
from readers.files import DEVICE, Part, is_device
from scaffe.errors import ScaffeError, SnapshotError


def write_atomically(path: str | os.PathLike[str], content: bytes | Sequence[Part]) -> None:
    """Write `content`, or its parts, to a file that appears complete or not at all. Raise SnapshotError otherwise."""
    parts = [content] if isinstance(content, bytes) else content
    try:
        replace_file(path, parts)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SnapshotError(f"{path}: can't write {sum(map(len, parts))} bytes: {reason}") from None


def check_writable(what: str, path: str | os.PathLike[str]) -> None:
    """Raise ScaffeError, which names `what` is to be written, if no file can be: now, not during or after the run."""
    folder = os.path.dirname(os.fspath(path)) or "."
    if os.path.isdir(path):
        raise ScaffeError(f"{what} '{path}': is a folder; name a file")
    if is_device(path):
        raise ScaffeError(f"{what} '{path}': {DEVICE}")
    if not os.path.isdir(folder):
        raise ScaffeError(f"{what} '{path}': no such folder: {folder}")
    if not os.access(folder, os.W_OK):
        raise ScaffeError(f"{what} '{path}': no permission to write in {folder}")
