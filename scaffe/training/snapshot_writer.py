"""SnapshotWriter: writes a snapshot in a thread of low priority, while training goes on."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

import numpy as np

from scaffe.monitor.log import log

NICENESS = 10  # of the thread, above that of training, so that it takes the cores that computing leaves
SHORTEST = 10.0  # seconds between two snapshots of a budget


class Copies:
    """Memory for copies of arrays, the same for each snapshot: as many bytes as the weights and the history have."""

    def __init__(self) -> None:
        self._buffers: list[np.ndarray] = []
        self._taken = 0

    def begin(self) -> None:
        """Begin a new snapshot: the earlier copies are overwritten."""
        self._taken = 0

    def take(self, array: np.ndarray) -> np.ndarray:
        """Return a copy of an array."""
        k, self._taken = self._taken, self._taken + 1
        if k == len(self._buffers):
            self._buffers.append(np.empty(array.shape, array.dtype))
        elif self._buffers[k].shape != array.shape:
            self._buffers[k] = np.empty(array.shape, array.dtype)
        np.copyto(self._buffers[k], array)
        return self._buffers[k]


class SnapshotWriter:
    """Runs one `write` at a time in a thread. The process ends after it."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self.cpu_seconds = 0.0  # of the last `write`

    def start(self, write: Callable[[], object]) -> None:
        """Run `write` in the thread; the earlier one must be finished."""
        thread = threading.Thread(target=self._run, args=(write,), name="snapshot writer")
        thread.start()
        self._thread = thread  # one that started: `join` can wait for it

    def join(self) -> None:
        """Wait until the snapshot is written, or has failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    @property
    def has_failed(self) -> bool:
        """Whether `write` has raised an error that `finish` has not raised yet."""
        return self._error is not None

    def follow(self, earlier: SnapshotWriter) -> None:
        """Take the place of a writer that has ended, whose error `finish` still raises."""
        self._error = earlier._error

    def finish(self) -> None:
        """Wait as `join` does, and raise the error of `write`, once."""
        self.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, write: Callable[[], object]) -> None:
        with contextlib.suppress(OSError, AttributeError):  # where threads have no priority of their own
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)
        try:
            write()
        except Exception as error:  # raised by `finish`, in the main thread
            self._error = error
            log.error("The snapshot under way is not written: %s", error)
        self.cpu_seconds = time.thread_time()


class SnapshotBudget:
    """Decides when a snapshot is due, so that snapshots take at most a share of the time (CheckFreq, FAST 2021).

    A snapshot costs the seconds that training waits for it, and those that its writer computes. It is due once the
    share of the time since the start covers the cost of the earlier ones and of one more, which the last one predicts.
    """

    def __init__(self, share: float, clock: Callable[[], float] = time.monotonic):
        self.share, self._clock = share, clock
        self._start = self._last = clock()
        self._spent = self._cost = 0.0
        self._is_waiting = False  # for the snapshot that is due

    def is_due(self) -> bool:
        """Return whether a snapshot is due, SHORTEST seconds after the last one or later: once until it `took`."""
        now = self._clock()
        due = now - self._last >= SHORTEST and self._spent + self._cost <= self.share * (now - self._start)
        if due and not self._is_waiting:
            self._is_waiting = True
            return True
        return False

    def took(self, seconds: float) -> None:
        """Note what the last snapshot has cost, in seconds."""
        self._spent += seconds
        self._cost, self._last, self._is_waiting = seconds, self._clock(), False
