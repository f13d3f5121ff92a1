"""What /proc says of a process of this machine: whether it runs, is stopped or has ended, and since when it exists."""

from __future__ import annotations

import os
from contextlib import suppress
from glob import iglob
from pathlib import Path
from typing import NamedTuple


class ProcessState(NamedTuple):
    """The state of a process, a letter of proc(5); its CPU time, and when it started after the machine; in ticks."""

    state: str
    cpu: int
    started: int

    @property
    def is_stopped(self) -> bool:
        """Whether a signal, or a debugger, has stopped the process."""
        return self.state in "Tt"

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, and its parent has not noticed yet: a zombie."""
        return self.state in "ZX"


def state_of(pid: int) -> ProcessState | None:
    """Return the state of a process of this machine; None if there is no such process, or if it is hidden."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()  # the name may have spaces
    except OSError:
        return None
    if len(fields) < 20:  # it ended while it was read
        return None
    return ProcessState(fields[0], int(fields[11]) + int(fields[12]), int(fields[19]))


def start_of(pid: int) -> int | None:
    """Return when a process of this machine started, in ticks; -1 if it has ended, None if it is hidden."""
    if found := state_of(pid):
        return -1 if found.has_ended else found.started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return -1
    except (OSError, OverflowError):
        pass
    return None


def is_written(file: int) -> bool:
    """Return whether a process of this machine, whose files are not hidden, has a file open for writing.

    `file` is a descriptor of it.
    """
    mine = os.fstat(file)
    for link in iglob("/proc/[0-9]*/fd/*"):
        with suppress(OSError):  # it is closed by now
            if os.lstat(link).st_mode & 0o200 and os.path.samestat(os.stat(link), mine):
                return True
    return False
