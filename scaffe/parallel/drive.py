"""Drive: who lets messages go on while the processor computes.

MPI moves messages only while somebody is in it. Either the one thread that computes looks in between layers, or a
helper thread computes and the main thread does nothing but talk MPI (S-Caffe section 4.3). Which is faster depends on
who computes: a GPU leaves the processor to MPI, cores that compute do not.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

import numpy as np

from collectives.staged import Pause
from scaffe.parallel.meter import Meter

NICENESS = 10  # of a helper that computes, above the main thread's: messages need the processor seldom, but at once


class Way(Protocol):
    """What is to be driven: propagation, aggregation."""

    meter: Meter

    def progress(self) -> bool:
        """Let messages go on; return whether anything moved."""

    def idle(self) -> bool:
        """Say whether nothing can move until the computation has come further."""


class Hook:
    """One thread: computes, and lets messages go on between layers."""

    name = "hook"

    def __init__(self, *ways: Way):
        self.ways = ways

    def run(self, work: Callable[[], None]) -> None:
        """Do the work."""
        work()

    def between(self) -> None:
        """Let messages go on; the work calls it between layers."""
        for way in self.ways:
            way.meter.handle(way.progress)

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Let messages go on until that is so; the work calls it before a layer, and others outside of work."""
        pause = Pause()
        while not is_done():
            pause.after(any([way.progress() for way in self.ways]))

    def close(self) -> None:
        """End."""


class Helper:
    """Two threads: a helper computes while the main one lets messages go on.

    Where they share a core the main thread comes first. On equal terms it would wait for the end of the helper's time
    slice whenever a message arrives, and links would stand still meanwhile.
    """

    name = "helper"

    def __init__(self, *ways: Way):
        self.ways = ways
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._moved = threading.Condition()
        self._finished = False
        self._further = threading.Event()  # the helper has come further
        self._failure: BaseException | None = None
        self._stop: BaseException | None = None
        self._thread = threading.Thread(target=self._compute, name="compute", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], None]) -> None:
        """Have the work done by the helper, and raise here what it raises there."""
        self._finished = False
        self._work.put(work)
        pause = Pause()
        try:
            while not self._finished:
                moved = any([way.progress() for way in self.ways])
                if moved:
                    with self._moved:
                        self._moved.notify_all()
                if all(way.idle() for way in self.ways):
                    self._further.wait()
                else:
                    pause.after(moved, self._further.wait)
                self._further.clear()
        except BaseException as error:
            self._release(error)
            raise
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def between(self) -> None:
        """Tell the main thread, which may be asleep for want of messages."""
        self._further.set()

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Wait until that is so: in the helper until the main thread has made it so, elsewhere by making it so."""
        if threading.current_thread() is not self._thread:
            return Hook(*self.ways).wait(is_done)
        self._further.set()
        with self._moved:
            self._moved.wait_for(lambda: is_done() or self._stop is not None)
        if self._stop is not None:
            raise self._stop

    def close(self) -> None:
        """End the helper."""
        self._work.put(None)
        self._thread.join()

    def _compute(self) -> None:
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)
        while (work := self._work.get()) is not None:
            try:
                with np.errstate(all="ignore"):
                    work()
            except BaseException as error:  # told by the main thread, as if it had happened there
                self._failure = error
            self._finished = True
            self._further.set()

    def _release(self, error: BaseException) -> None:
        """Let the helper go, which may be waiting for what now never comes."""
        with self._moved:
            self._stop = error
            self._moved.notify_all()


DRIVES: dict[str, type[Hook] | type[Helper]] = {"hook": Hook, "helper": Helper}
