"""Files that appear complete or not at all."""

from __future__ import annotations

import os

from readers import replace_file
from scaffe.errors import SnapshotError


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to a file that appears complete or not at all. Raise SnapshotError if that fails."""
    try:
        replace_file(path, content)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SnapshotError(f"{path}: can't write {len(content)} bytes: {reason}") from None
