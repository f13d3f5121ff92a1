"""Drive: which thread advances messages while the processor computes.

MPI advances messages only while a thread is inside it. With "hook" the one thread that computes calls it between
layers. With "helper" a helper thread computes, and the main thread does nothing else than call MPI (S-Caffe section
4.3). Which is faster depends on the device: a GPU leaves the processor to MPI, cores that compute do not.
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

NICENESS = 10  # of the helper, above the main thread's: messages need the processor seldom, but without delay


class Transfer(Protocol):
    """Messages that a drive advances: propagation, aggregation, or sums of layers."""

    meter: Meter

    def progress(self) -> bool:
        """Advance messages; return whether any advanced."""

    def idle(self) -> bool:
        """Return whether no message can advance until the computation has gone on. Calls no MPI."""


class Hook:
    """One thread computes, and advances messages between layers."""

    name = "hook"

    def __init__(self, *transfers: Transfer):
        self.transfers = transfers

    def run(self, work: Callable[[], None]) -> None:
        """Call `work`, a pass over the layers."""
        work()

    def between(self) -> None:
        """Advance messages; `work` calls it between layers."""
        for transfer in self.transfers:
            transfer.meter.handle(transfer.progress)

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Advance messages until `is_done()`; may be called inside and outside of `work`."""
        pause = Pause()
        while not is_done():
            pause.after(any([transfer.progress() for transfer in self.transfers]))

    def close(self) -> None:
        """Do nothing: there is no thread to end."""


class Helper:
    """A helper thread computes while the main thread advances messages.

    If the two share a core, the main thread has the higher priority. With equal priorities a message that arrives
    would wait until the helper's time slice ends, and the links would be unused until then.
    """

    name = "helper"

    def __init__(self, *transfers: Transfer):
        self.transfers = transfers
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._moved = threading.Condition()
        self._finished = False
        self._further = threading.Event()  # the helper has computed a layer, waits, or has finished
        self._failure: BaseException | None = None  # of the helper, to be raised in the main thread
        self._stop: BaseException | None = None  # of the main thread, to be raised in the helper
        self._thread = threading.Thread(target=self._compute, name="compute", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], None]) -> None:
        """Call `work` in the helper thread while this thread advances messages; re-raise its exceptions here."""
        self._finished = False
        self._work.put(work)
        pause = Pause()
        try:
            while not self._finished:
                moved = any([transfer.progress() for transfer in self.transfers])
                if moved:
                    with self._moved:
                        self._moved.notify_all()
                if all(transfer.idle() for transfer in self.transfers):
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
        """Wake the main thread, which sleeps while no message can advance."""
        self._further.set()

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Return once `is_done()`: in the helper wait for the main thread, in any other thread advance messages."""
        if threading.current_thread() is not self._thread:
            return Hook(*self.transfers).wait(is_done)
        self._further.set()
        with self._moved:
            self._moved.wait_for(lambda: is_done() or self._stop is not None)
        if self._stop is not None:
            raise self._stop

    def close(self) -> None:
        """End the helper thread, and join it."""
        self._work.put(None)
        self._thread.join()

    def _compute(self) -> None:
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)
        while (work := self._work.get()) is not None:
            try:
                with np.errstate(all="ignore"):
                    work()
            except BaseException as error:  # re-raised in the main thread
                self._failure = error
            self._finished = True
            self._further.set()

    def _release(self, error: BaseException) -> None:
        """Wake the helper, which may wait for messages that will not arrive, and raise the error there."""
        with self._moved:
            self._stop = error
            self._moved.notify_all()


DRIVES: dict[str, type[Hook] | type[Helper]] = {"hook": Hook, "helper": Helper}
