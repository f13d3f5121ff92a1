"""Patience: how long a test may take, in seconds of a machine that is its own.

Where more want to run than there are cores, a second counts for the share of a core that each of them gets. While the
machine stands still no time is counted.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable

LOOK = 1.0  # seconds between two looks at what else runs
LEAST_SHARE = 0.2  # of a core: however busy the machine, a test takes at most five times as many by the clock
LONGEST_JOB = 80.0  # seconds


def share() -> float:
    """Return which part of a core each of those has that want to run now: 1 where there is room."""
    try:
        with open("/proc/loadavg") as file:
            running = int(file.read().split()[3].split("/")[0])
    except (OSError, ValueError, IndexError):
        return 1.0
    return min(1.0, (os.cpu_count() or 1) / max(1, running))


def least_share() -> float:
    """Return the share of a core that a test gets, as it counts for a watchdog."""
    return max(share(), LEAST_SHARE)


def patient(wait: Callable[[float], bool], seconds: float, share: Callable[[], float] = share) -> bool:
    """Call `wait(a while)` until it returns true, which is returned; false once so many seconds have been counted."""
    counted = 0.0
    while counted < seconds:
        begin, look = time.monotonic(), min(LOOK, seconds / 8)
        if wait(look):
            return True
        counted += min(time.monotonic() - begin, look) * share()  # a look that took longer was held up itself
    return False


def communicate(process: subprocess.Popen[str], seconds: float) -> tuple[str, str] | None:
    """Return what a process wrote, once it has ended; None when that takes too long."""
    written: list[tuple[str, str]] = []

    def wait(seconds: float) -> bool:
        try:
            written.append(process.communicate(timeout=seconds))
        except subprocess.TimeoutExpired:
            return False
        return True

    return written[0] if patient(wait, seconds) else None


def end_late(process: subprocess.Popen[str], seconds: float = LONGEST_JOB) -> None:
    """Have a process asked to end that is running after so many seconds: who reads what it writes waits no longer.

    Its test then fails alone; the watchdog, which knows of no process, would end all tests.
    """

    def ends(seconds: float) -> bool:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def watch() -> None:
        if not patient(ends, seconds, least_share):
            process.terminate()  # mpirun ends its ranks

    threading.Thread(target=watch, name="end late", daemon=True).start()
