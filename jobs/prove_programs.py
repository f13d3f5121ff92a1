"""Programs of prove_on_gpu.sh: one is run with all that it starts, and all of it is ended."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

MARK = "SCAFFE_PROVE_STEP"  # in the environment of a program and of what it starts: by it they are found
GRACE = 3  # seconds between SIGTERM and SIGKILL
_NUMBERS = itertools.count()


class Signals:
    """The signal that has ended this run: a flag, not an exception, so that what is being written is written whole."""

    number = 0

    def catch(self) -> None:
        """Note SIGTERM and SIGINT from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        self.number = number

    def name(self) -> str:
        """Return the signal's name, "" without one."""
        return signal.Signals(self.number).name if self.number else ""


def wait(
    command: Sequence[str],
    output: IO[str],
    seconds: float,
    stopped: Callable[[], object],
    environment: Mapping[str, str] | None = None,
) -> int | None:
    """Run a program, and end what it has started and left; return its exit code.

    After so many seconds, and once `stopped` returns true, end it too, and return None.
    """
    mark = f"{os.getpid()}.{next(_NUMBERS)}"
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        env={**os.environ, **(environment or {}), MARK: mark},
    )  # fmt: skip
    end = time.monotonic() + seconds
    try:
        while (code := process.poll()) is None and time.monotonic() < end and not stopped():
            time.sleep(0.05)
        return code
    finally:
        _end(process, mark)


def _end(process: subprocess.Popen, mark: str) -> None:
    """End a program: its group by SIGTERM, on which mpirun ends its ranks; then all that it started by SIGKILL."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    end = time.monotonic() + GRACE
    while process.poll() is None or started(mark):
        if time.monotonic() > end:
            for number in {process.pid, *started(mark)}:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
        time.sleep(0.02)


def started(mark: str) -> list[int]:
    """Return the processes with that mark in their environment, in whatever session they are."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for place in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # ended meanwhile, or another user's
            if wanted in place.read_bytes().split(b"\0"):
                found.append(int(place.parent.name))
    return found
