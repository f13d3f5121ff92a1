"""FileLock: a file that shows other runs that one writes beside it."""

from __future__ import annotations

import contextlib
import errno
import os

from readers.files import lock
from scaffe.files.lock_owner import Owner, owner_in, this_process
from scaffe.monitor.log import log

TRIES = 10  # some file systems never show that two handles are of one file


class FileLock:
    """A lock on a file, held from `take` to `release`, or to the end of the process, however that ends.

    The file names its holder. A network file system may keep the lock of a host that is lost, and so do processes that
    the holder has forked: a lock is taken over unless its holder is a living process of this machine. A file
    system without locks gives one to everybody.
    """

    def __init__(self, path: str):
        self.path = path
        self._descriptor: int | None = None
        self._owner: Owner | None = None  # this process, once it has had the lock

    def take(self) -> bool:
        """Make the file and lock it, unless this holds it already; anew where somebody has removed it.

        Return whether this did not hold it before.

        Who had the lock before takes it over from nobody. Raise BlockingIOError, with the holder as its text, if
        another holds it, OSError where it can't be made.
        """
        for attempt in range(TRIES):
            if self._is_there(self._descriptor):
                return attempt > 0
            self.release()
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            try:
                lock(descriptor)
            except BlockingIOError:
                try:
                    self._remove_lost(descriptor)
                finally:
                    os.close(descriptor)
                continue
            self._descriptor = descriptor  # its former holder may have removed it before this locked it
            self._sign(descriptor)
        if self._descriptor is None:
            raise BlockingIOError(errno.EWOULDBLOCK, "others that come and go")
        return True

    def _remove_lost(self, descriptor: int) -> None:
        """Remove a file that another has locked; raise BlockingIOError if that one may be alive."""
        holder = owner_in(os.pread(descriptor, 4096, 0))
        if holder is None or holder.is_alive() or self._owner is not None:
            raise BlockingIOError(errno.EWOULDBLOCK, str(holder or "unknown"))
        if self._is_there(descriptor):
            log.warning("%s: taken over from %s, which has ended or is on another machine", self.path, holder)
            os.unlink(self.path)

    def _sign(self, descriptor: int) -> None:
        self._owner = this_process()
        with contextlib.suppress(OSError):  # a full disk: nobody takes over the lock of a holder that is unknown
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, self._owner.encoded(), 0)
            os.fsync(descriptor)  # other hosts are to see it also once this one is lost

    def _is_there(self, descriptor: int | None) -> bool:
        """Return whether a descriptor is that of the file which has the path now."""
        try:
            return descriptor is not None and os.path.samestat(os.fstat(descriptor), os.lstat(self.path))
        except OSError:  # such as a stale handle of a network file system
            return False

    def release(self) -> None:
        """Remove the file, while it is locked; do nothing where it is not held. It is the parent's in a fork."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with contextlib.suppress(OSError):
            if self._owner is not None and self._owner.pid == os.getpid() and self._is_there(descriptor):
                os.unlink(self.path)
        with contextlib.suppress(OSError):
            os.close(descriptor)
