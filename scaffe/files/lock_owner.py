"""Owner: the process that holds a lock, as the lock's file names it, and whether it is alive."""

from __future__ import annotations

import errno
import json
import os
import secrets
import signal
import socket
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from scaffe.files.process_state import start_of


@dataclass(frozen=True)
class Owner:
    """The holder of a lock. `machine` and `started` distinguish the process from all others with the same `pid`."""

    host: str
    pid: int
    started: int  # in clock ticks since the machine's start
    machine: str
    job: str  # SLURM's, "" elsewhere
    restarts: int  # how often SLURM has requeued the job
    token: str  # random, for each lock taken

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" + (f", SLURM job {self.job}" if self.job else "")

    def encoded(self) -> bytes:
        """Return the content of a lock's file that names this process, which `owner_in` reads."""
        return json.dumps(asdict(self)).encode()

    def is_alive(self) -> bool | None:
        """Return whether the process may still write; None if that is not visible from this machine."""
        if not self.machine and not self.job:
            return None  # as a rank knows those of other hosts: to look here for each of many takes seconds
        here = this_process()
        if self.machine and self.machine == here.machine:
            started = start_of(self.pid)
            return None if started is None else started == self.started
        if self.job and self.job == here.job and self.restarts < here.restarts:
            return False  # SLURM restarts a job once it has ended on all nodes
        return None

    def kill(self) -> bool:
        """Kill the process; return False if it has ended, even if its id is another one's by now.

        Raise OSError where it is not visible from this machine, or can't be killed.
        """
        is_alive = self.is_alive()
        if is_alive is None:
            raise ProcessLookupError(errno.ESRCH, "it is not visible in /proc")
        if is_alive:
            os.kill(self.pid, signal.SIGKILL)
        return is_alive


def this_process() -> Owner:
    """Return this process as an Owner, with a new token."""
    env, pid = os.environ, os.getpid()
    restarts = env.get("SLURM_RESTART_COUNT", "")
    return Owner(
        socket.gethostname(), pid, start_of(pid) or 0, _machine(), env.get("SLURM_JOB_ID", ""),
        int(restarts) if restarts.isdigit() else 0, secrets.token_hex(8),
    )  # fmt: skip


def _machine() -> str:
    """Return an identifier of this boot of this machine and of this container; "" if there is none."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def owner_in(content: bytes) -> Owner | None:
    """Return the process that a lock's file names; None if it names none, or is not written yet."""
    try:
        owner = Owner(**json.loads(content))
    except (ValueError, TypeError):
        return None
    kinds = {field.name: str if field.type == "str" else int for field in fields(Owner)}
    sound = all(isinstance(getattr(owner, name), kind) for name, kind in kinds.items())
    return owner if sound and str(owner).isprintable() else None
