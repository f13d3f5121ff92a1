"""PrefixLock: only one job at a time writes and removes the snapshots of a prefix.

PREFIX.lock names the process and the job that hold the lock, and its owner touches it every BEAT seconds. A lock whose
owner was a process of this machine that has ended is taken over at once. Of an owner on another machine only the file
is visible: while its modification time changes, by any clock, the owner is alive; after PATIENCE seconds without a
change another job takes the lock over.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection
from typing import NamedTuple

from scaffe.errors import SnapshotError
from scaffe.files.lock_owner import Owner, owner_in, this_process
from scaffe.monitor.log import log

BEAT = 10  # seconds between two touches of the file
PATIENCE = 50  # seconds without a touch, after which the owner is considered dead


class _LockState(NamedTuple):
    """The content of a lock's file, and its modification time in ns."""

    owner: Owner | None  # None if the file names none, or is not written yet
    changed: int


class PrefixLock:
    """A lock on a prefix's snapshots, held from `take` to `release` or to the end of the process.

    Solvers of one process share it. `taken()` is called when the process gets the lock, `wait(seconds)` between two
    reads of another job's lock.
    """

    def __init__(
        self, prefix: str, taken: Callable[[], object] = lambda: None, wait: Callable[[float], None] = time.sleep
    ):
        folder, name = os.path.split(prefix)
        self.prefix, self.taken, self.wait = prefix, taken, wait
        self.path = os.path.join(os.path.realpath(folder), f"{name}.lock")
        self._end: weakref.finalize[[], PrefixLock] | None = None
        self._tries = 0

    def take(self, earlier: Collection[str] = ()) -> str:
        """Take the lock, or check that this process still holds it; return its token.

        A lock with one of the `earlier` tokens is taken over at once: its owner is lost to this job, and may be out of
        reach. It writes nothing once it has seen this lock. Raise SnapshotError if another job holds it, or has taken
        it over from this one, or if it can't be written.
        """
        try:
            return self._take(earlier)
        except SnapshotError:
            raise
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise SnapshotError(f"snapshot_prefix '{self.prefix}': {self.path}: {reason}") from None

    def _take(self, earlier: Collection[str]) -> str:
        file = _held.get(self.path)
        if file is None:
            file = _held[self.path] = _LockFile(self.path, self._acquire(earlier))
            self.taken()
        if self._end is None:
            file.users += 1
            self._end = weakref.finalize(self, file.leave)
        file.check(self.prefix)
        return file.owner.token

    def release(self) -> None:
        """Release the lock, unless another solver of this process holds it. Does nothing if it is not held."""
        if self._end is not None:
            self._end()
            self._end = None

    def _acquire(self, earlier: Collection[str]) -> tuple[Owner, int]:
        """Create the lock's file; return its owner, this process, and its descriptor."""
        while True:
            seen = _look(self.path)
            if seen is None:
                with contextlib.suppress(FileExistsError):
                    return _make(self.path)
                continue
            is_lost = seen.owner is not None and seen.owner.token in earlier
            alive = False if is_lost else seen.owner.is_alive() if seen.owner else None
            later = self._watch(seen) if alive is None else seen
            if alive or (later and later != seen and later.owner == seen.owner):
                raise SnapshotError(
                    f"snapshot_prefix '{self.prefix}': another job writes there ({seen.owner or 'unknown'}); "
                    f"wait until it ends, or give this job another snapshot_prefix; the lock is {self.path}"
                )
            if later == seen and (made := self._take_over(seen)):
                return made

    def _watch(self, seen: _LockState) -> _LockState | None:
        """Wait until the lock's file changes, at most PATIENCE seconds; return its last state."""
        text = "%s: waiting for up to %d s to see whether its owner (%s) is alive"
        log.info(text, self.path, PATIENCE, seen.owner or "unknown")
        for _ in range(PATIENCE):
            self.wait(1)
            if (later := _look(self.path)) != seen:
                return later
        return seen

    def _take_over(self, seen: _LockState) -> tuple[Owner, int] | None:
        """Replace a dead owner's lock by one of this process; return None if another process does so.

        Only one process can create PREFIX.lock.next, and it renames that only if the dead owner's lock is still there.
        """
        following = f"{self.path}.next"
        try:
            made = _make(following)
        except FileExistsError:
            self.wait(1)
            self._tries += 1
            if self._tries > PATIENCE:
                raise SnapshotError(f"{following}: left by a job that was killed; remove it") from None
            return None
        now = _look(self.path)
        if now is None or now.owner != seen.owner:
            os.close(made[1])
            os.unlink(following)
            return None
        os.replace(following, self.path)
        log.warning("%s: taken over from %s, which has ended or is lost", self.path, seen.owner or "an unknown job")
        return made


class _LockFile:
    """A lock that this process holds, touched by a thread until its last user leaves."""

    def __init__(self, path: str, made: tuple[Owner, int]):
        self.path = path
        self.owner, self.descriptor = made
        self.users = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="snapshot lock", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._ending.wait(BEAT):
            with contextlib.suppress(OSError):  # the next touch may reach the file server again
                os.utime(self.descriptor)

    def check(self, prefix: str) -> None:
        """Raise SnapshotError if another job holds the lock now; create it again if it was removed."""
        seen = _look(self.path)
        if seen is None:
            os.close(self.descriptor)
            self.owner, self.descriptor = _make(self.path)
        elif seen.owner != self.owner:
            raise SnapshotError(
                f"snapshot_prefix '{prefix}': another job ({seen.owner or 'unknown'}) has taken over its lock while "
                "this job was stopped; nothing is written; give one of the jobs another snapshot_prefix"
            )

    def leave(self) -> None:
        """Count one user less; without users remove the file, unless another job holds the lock now."""
        self.users -= 1
        if self.users or os.getpid() != self.owner.pid:  # in a forked child: the parent still holds it
            return
        del _held[self.path]
        self._ending.set()
        self._thread.join()
        os.close(self.descriptor)
        with contextlib.suppress(OSError):
            if (seen := _look(self.path)) and seen.owner == self.owner:
                os.unlink(self.path)


_held: dict[str, _LockFile] = {}  # this process's locks, by path


def _make(path: str) -> tuple[Owner, int]:
    """Create a lock's file for this process. Raise OSError if that fails, FileExistsError if it exists."""
    owner = this_process()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        os.write(descriptor, owner.encoded())
    except BaseException:
        os.close(descriptor)
        os.unlink(path)
        raise
    return owner, descriptor


def _look(path: str) -> _LockState | None:
    """Return the state of a lock's file, None if there is none. It is opened anew, which bypasses NFS caches."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        return _LockState(owner_in(file.read(4096)), os.fstat(descriptor).st_mtime_ns)
