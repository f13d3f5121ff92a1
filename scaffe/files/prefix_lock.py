"""A lock beside a snapshot prefix: snapshots of one name are written and removed by one job at a time.

PREFIX.lock says which process of which job has it, and is touched every few seconds. A process on the same machine
that is gone has lost it at once. Of one elsewhere only the file is seen: as long as its time of change moves on, by
whichever clock, its owner lives; who has seen it stand still for long enough takes the lock over.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple

from scaffe.errors import SnapshotError
from scaffe.monitor.log import log

BEAT = 10  # seconds between two signs of life
PATIENCE = 50  # seconds without one, after which the owner counts as dead


@dataclass(frozen=True)
class Owner:
    """Who has a lock. `machine` and `started` tell the process from all others that were ever called `pid`."""

    host: str
    pid: int
    started: int  # in ticks of the machine's clock
    machine: str
    job: str  # SLURM's, "" elsewhere
    restarts: int  # how often SLURM has put the job into its queue again
    token: str  # another one for each lock that was taken

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" + (f", SLURM job {self.job}" if self.job else "")

    def is_alive(self) -> bool | None:
        """Say whether the process may still write; None where that can't be told from here."""
        here = this_process()
        if self.machine and self.machine == here.machine:
            started = start_of(self.pid)
            return None if started is None else started == self.started
        if self.job and self.job == here.job and self.restarts < here.restarts:
            return False  # SLURM runs a job again when it has ended everywhere
        return None


def this_process() -> Owner:
    """Return this process as the owner of a lock that it is about to take."""
    env, pid = os.environ, os.getpid()
    restarts = env.get("SLURM_RESTART_COUNT", "")
    return Owner(
        socket.gethostname(), pid, start_of(pid) or 0, _machine(), env.get("SLURM_JOB_ID", ""),
        int(restarts) if restarts.isdigit() else 0, secrets.token_hex(8),
    )  # fmt: skip


def _machine() -> str:
    """Return what tells this machine, since it was started, and this container from others; "" if nothing does."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def start_of(pid: int) -> int | None:
    """Return when a process of this machine started, -1 if it has ended, None if it isn't shown to this user."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return -1 if fields[0] in "ZX" else int(fields[19])  # a zombie has ended
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return -1
    except (OSError, OverflowError):
        pass
    return None


class _Seen(NamedTuple):
    """What a lock's file said, and its time of change then."""

    owner: Owner | None  # None where it said nothing, or not yet
    changed: int


class PrefixLock:
    """Keep other jobs from a prefix's snapshots, from `take` to `release`, or else until the process ends.

    Solvers of one process have it together. `taken` is called when the process gets it, `wait(seconds)` between two
    looks at another's lock.
    """

    def __init__(
        self, prefix: str, taken: Callable[[], object] = lambda: None, wait: Callable[[float], None] = time.sleep
    ):
        folder, name = os.path.split(prefix)
        self.prefix, self.taken, self.wait = prefix, taken, wait
        self.path = os.path.join(os.path.realpath(folder), f"{name}.lock")
        self._end: weakref.finalize | None = None
        self._tries = 0

    def take(self) -> None:
        """Take the lock, or see that this process still has it.

        Raise SnapshotError where another job has it, or has taken it over from this one, or it can't be written.
        """
        try:
            self._take()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise SnapshotError(f"snapshot_prefix '{self.prefix}': {self.path}: {reason}") from None

    def _take(self) -> None:
        file = _held.get(self.path)
        if file is None:
            file = _held[self.path] = _LockFile(self.path, self._acquire())
            self.taken()
        if self._end is None:
            file.users += 1
            self._end = weakref.finalize(self, file.leave)
        file.check(self.prefix)

    def release(self) -> None:
        """Let others have the lock, unless another solver of this process needs it. No error where it isn't held."""
        if self._end is not None:
            self._end()
            self._end = None

    def _acquire(self) -> tuple[Owner, int]:
        """Make the lock's file; return its owner, this process, and its descriptor."""
        while True:
            seen = _look(self.path)
            if seen is None:
                with contextlib.suppress(FileExistsError):
                    return _make(self.path)
                continue
            alive = seen.owner.is_alive() if seen.owner else None
            later = self._watch(seen) if alive is None else seen
            if alive or (later and later != seen and later.owner == seen.owner):
                raise SnapshotError(
                    f"snapshot_prefix '{self.prefix}': another job writes there ({seen.owner or 'not known which'}); "
                    f"let it end, or give this one another snapshot_prefix; its lock is {self.path}"
                )
            if later == seen and (made := self._take_over(seen)):
                return made

    def _watch(self, seen: _Seen) -> _Seen | None:
        """Look on until the lock's file changes or has stood still for long enough; return what was seen last."""
        text = "%s: waiting for up to %d s to see whether its owner (%s) is alive"
        log.info(text, self.path, PATIENCE, seen.owner or "not known which")
        for _ in range(PATIENCE):
            self.wait(1)
            if (later := _look(self.path)) != seen:
                return later
        return seen

    def _take_over(self, seen: _Seen) -> tuple[Owner, int] | None:
        """Put a lock of this process in the place of a dead one's; None where another process does that.

        Only one can make PREFIX.lock.next, and it renames that only if the dead one's lock is still there.
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
        log.warning("%s: taken over from %s, which is gone", self.path, seen.owner or "an unknown job")
        return made


class _LockFile:
    """A lock that this process has: touched by a thread of its own until the last user leaves."""

    def __init__(self, path: str, made: tuple[Owner, int]):
        self.path = path
        self.owner, self.descriptor = made
        self.users = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="snapshot lock", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._ending.wait(BEAT):
            with contextlib.suppress(OSError):  # the next one may reach the file server again
                os.utime(self.descriptor)

    def check(self, prefix: str) -> None:
        """Raise SnapshotError where the lock is another's by now; make it again where somebody has removed it."""
        seen = _look(self.path)
        if seen is None:
            os.close(self.descriptor)
            self.owner, self.descriptor = _make(self.path)
        elif seen.owner != self.owner:
            raise SnapshotError(
                f"snapshot_prefix '{prefix}': another job ({seen.owner or 'not known which'}) has taken its lock over "
                "while this one stood still; nothing is written; give one of them another snapshot_prefix"
            )

    def leave(self) -> None:
        """Remove the lock with its last user, unless it is another's by now."""
        self.users -= 1
        if self.users or os.getpid() != self.owner.pid:  # a forked child ends
            return
        del _held[self.path]
        self._ending.set()
        self._thread.join()
        os.close(self.descriptor)
        with contextlib.suppress(OSError):
            if (seen := _look(self.path)) and seen.owner == self.owner:
                os.unlink(self.path)


_held: dict[str, _LockFile] = {}  # this process's, by their paths


def _make(path: str) -> tuple[Owner, int]:
    """Make a lock's file, which must not be there, for this process. Raise OSError where that fails."""
    owner = this_process()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        os.write(descriptor, json.dumps(asdict(owner)).encode())
    except BaseException:
        os.close(descriptor)
        os.unlink(path)
        raise
    return owner, descriptor


def _look(path: str) -> _Seen | None:
    """Return what a lock's file says, None if it isn't there. Opening it anew passes the caches of file servers."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        return _Seen(_parse(file.read(4096)), os.fstat(descriptor).st_mtime_ns)


def _parse(content: bytes) -> Owner | None:
    try:
        owner = Owner(**json.loads(content))
    except (ValueError, TypeError):
        return None
    kinds = {field.name: str if field.type == "str" else int for field in fields(Owner)}
    sound = all(isinstance(getattr(owner, name), kind) for name, kind in kinds.items())
    return owner if sound and str(owner).isprintable() else None
