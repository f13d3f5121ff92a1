"""Progress: the collectives under way in this process. Whoever waits for one advances all.

So no order of waits hangs, as with MPI's own non-blocking collectives: ranks may wait for the same ones in any order.
A blocking collective advances no others.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet

from collectives.errors import ArgumentError

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

    def add(self, one: Active) -> None:
        """Advance this too from now on."""
        with self._lock:
            self._active.add(one)

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

    def wait_until(self, is_done: Callable[[], bool], own: Active) -> None:
        """Advance all until `is_done()`. Raise what fails in `own`; what fails elsewhere is raised there, later.

        Raise ArgumentError in a thread that may not call MPI.
        """
        _check_thread()
        pause = Pause()
        while not is_done():
            moved = own.progress()
            pause.after(self._advance_others(own) or moved)

    def _advance_others(self, own: Active) -> bool:
        """Advance all but `own`; return whether anything advanced."""
        moved = False
        with self._lock:
            for one in [one for one in self._active if one is not own]:
                try:
                    moved |= one.progress()
                except Exception as error:
                    one.failure = error
        return moved


def _check_thread() -> None:
    """Raise ArgumentError where MPI's thread level keeps the calling thread from calling it."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Query_thread() < mpi.THREAD_SERIALIZED and not mpi.Is_thread_main():
        raise ArgumentError(
            "only the thread that has started MPI may wait: its thread level is below MPI_THREAD_SERIALIZED"
        )


PROGRESS = ProgressEngine()  # of this process
