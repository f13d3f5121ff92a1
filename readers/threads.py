"""The limit of a number of threads on this machine."""

from __future__ import annotations

import os

from readers.errors import ReaderError

ON_ANY_MACHINE, PER_PROCESSOR = 256, 4


def most_threads() -> int:
    """Return the most threads of a setting: 256, or 4 for each of the machine's processors if that is more.

    With far more threads libraries crash in place of an error.
    """
    return max(ON_ANY_MACHINE, PER_PROCESSOR * (os.cpu_count() or 1))


def check_threads(name: str, threads: int) -> int:
    """Return `threads`, 0 for the default. Raises ReaderError, which has the setting's `name`, out of range."""
    if not 0 <= threads <= most_threads():
        raise ReaderError(f"{name} must be 0 to {most_threads()} on this machine, got {threads}")
    return threads
