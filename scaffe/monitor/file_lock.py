"""FileLock: a file that shows other runs that one writes beside it."""

from __future__ import annotations

import contextlib
import fcntl
import os


class FileLock:
    """A lock on a file, held from `take` to `release`, or to the end of the process, however that ends.

    A file system without locks gives one to everybody.
    """

    def __init__(self, path: str):
        self.path = path
        self._descriptor: int | None = None

    def take(self) -> None:
        """Make the file and lock it, unless this holds it already; anew where somebody has removed it.

        Raise BlockingIOError if another holds it, OSError where it can't be made.
        """
        while self._descriptor is None or not os.fstat(self._descriptor).st_nlink:
            self.release()
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise
            except OSError:
                pass
            self._descriptor = descriptor  # its former holder may have removed it before this locked it

    def release(self) -> None:
        """Remove the file, while it is locked; do nothing where it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if os.fstat(descriptor).st_nlink:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        os.close(descriptor)
