"""How many threads make sense on this machine."""

from __future__ import annotations

import os

from readers.errors import ReaderError

ANYWHERE, A_PROCESSOR = 256, 4


def most_threads() -> int:
    """Return the most threads that anything here may ask for: 256, or 4 for each of the machine's processors.

    Far beyond, libraries crash instead of saying that they can't have them.
    """
    return max(ANYWHERE, A_PROCESSOR * (os.cpu_count() or 1))


def check_threads(name: str, threads: int) -> int:
    """Return `threads`, 0 for as many as are good. Raise ReaderError, with their `name`, for what makes no sense."""
    if not 0 <= threads <= most_threads():
        raise ReaderError(f"{name} must be 0 to {most_threads()} on this machine, got {threads}")
    return threads
