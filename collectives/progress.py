"""Progress: the collectives under way in this process. Whoever waits for one advances all.

Three drive it: whoever waits or tests; a loop that calls `progress` of what it has begun, as scaffe's drives do; and a
thread of its own, once `use_thread` is called.

So no order of waits hangs, as with MPI's own non-blocking collectives: ranks may wait for the same ones in any order.
A blocking collective advances, before it begins, what its own communicator has under way, and no others.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Callable
from math import inf
from typing import Protocol
from weakref import WeakSet

from collectives.errors import ArgumentError, WaitTimeout

LONGEST_PAUSE = 200e-6  # seconds: a wait that finds nothing to do leaves the processor to compute threads


class Pause:
    """Sleep between polls that find nothing to do: at first a moment, at most LONGEST_PAUSE."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def after(self, moved: bool, sleep: Callable[[float], object] = time.sleep) -> None:
        """Sleep a little longer than the last time, unless something `moved` since."""
        self._seconds = 0.0 if moved else min(LONGEST_PAUSE, 2 * self._seconds + 1e-6)
        if not moved:
            sleep(self._seconds if self._seconds > LONGEST_PAUSE / 8 else 0)


class Active(Protocol):
    """A collective under way, or several. `failure`: the error of an advance by others, which it has yet to raise."""

    failure: Exception | None

    def progress(self) -> bool:
        """Advance without waiting, by `ProgressEngine.step`; return whether anything advanced."""


class ProgressEngine:
    """Knows what is under way, and advances it; one thread at a time is inside.

    It forgets what nobody refers to any more, and what has failed.
    """

    def __init__(self) -> None:
        self._lock, self._active = threading.RLock(), WeakSet[Active]()
        self._thread: threading.Thread | None = None
        self._has_work, self._ends = threading.Event(), False

    def add(self, one: Active) -> None:
        """Advance this too from now on."""
        with self._lock:
            self._active.add(one)
        if self._thread is not None:
            self._has_work.set()

    def drop(self, one: Active) -> None:
        """Advance it no more."""
        with self._lock:
            self._active.discard(one)

    @property
    def is_busy(self) -> bool:
        """Return whether anything is under way."""
        return bool(self._active)

    def step(self, one: Active, work: Callable[[], bool]) -> bool:
        """Return `work()`, by which `one` advances, or raise its failure. What fails is dropped."""
        with self._lock:
            failure, one.failure = one.failure, None
            try:
                if failure is not None:
                    raise failure
                return work()
            except Exception:
                self._active.discard(one)
                raise

    def wait_until(
        self, is_done: Callable[[], bool], own: Active, timeout: float | None = None, what: str = "it"
    ) -> None:
        """Advance all until `is_done()`. Raise what fails in `own`; what fails elsewhere is raised there, later.

        Raise ArgumentError in a thread that may not call MPI, WaitTimeout after `timeout` seconds.
        """
        _check_thread()
        check_timeout(timeout)
        end = inf if timeout is None else time.monotonic() + timeout
        pause = Pause()
        while not is_done():
            if end < inf and time.monotonic() > end:
                raise WaitTimeout(f"waited {timeout} s for {what}, which is still under way")
            moved = own.progress()
            pause.after(self._advance_others(own) or moved)

    def advance(self, own: Active) -> bool:
        """Advance all without waiting; return whether anything advanced. Raise what fails in `own`."""
        _check_thread()
        moved = own.progress()
        return self._advance_others(own) or moved

    def use_thread(self) -> None:
        """Advance all in a thread of this process too, from now on, so that messages pass while the caller computes.

        Raise ArgumentError where MPI's thread level is below MPI_THREAD_MULTIPLE.
        """
        from mpi4py import MPI

        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise ArgumentError("progress 'thread' needs MPI_THREAD_MULTIPLE; use 'caller', and test now and then")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="collectives progress", daemon=True)
            self._thread.start()
            atexit.register(self.end_thread)

    def end_thread(self) -> None:
        """End the thread, if there is one, and join it."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ends = True
            self._has_work.set()
            thread.join()
            self._ends = False

    def _run(self) -> None:
        """Advance all while there is anything, until the end."""
        pause = Pause()
        while not self._ends:
            pause.after(self._advance_others(None))
            if not self._active:
                self._has_work.clear()
                if not (self._active or self._ends):  # since before the flag was cleared
                    self._has_work.wait()

    def _advance_others(self, own: Active | None) -> bool:
        """Advance all but `own`; return whether anything advanced."""
        moved = False
        with self._lock:
            for one in [one for one in self._active if one is not own]:
                try:
                    moved |= one.progress()
                except Exception as error:
                    one.failure = error
        return moved


def check_timeout(timeout: object) -> None:
    """Raise ArgumentError for what is no number of seconds from 0 on, or None."""
    if timeout is not None and not (isinstance(timeout, int | float) and timeout >= 0):
        raise ArgumentError(f"timeout must be seconds from 0 on, or None, got {timeout!r:.60}")


def _check_thread() -> None:
    """Raise ArgumentError where MPI's thread level keeps the calling thread from calling it."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Query_thread() < mpi.THREAD_SERIALIZED and not mpi.Is_thread_main():
        raise ArgumentError(
            "only the thread that has started MPI may wait: its thread level is below MPI_THREAD_SERIALIZED"
        )


PROGRESS = ProgressEngine()  # of this process
