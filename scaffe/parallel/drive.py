"""Drive: which thread advances messages while the processor computes.

MPI advances messages only while a thread is inside it. With "hook" the one thread that computes calls it between
layers. With "helper" a helper thread computes, and the main thread does nothing else than call MPI (S-Caffe section
4.3). Which is faster depends on the device: a GPU leaves the processor to MPI, cores that compute do not. Several
instances compute in as many threads; their drive is in scaffe/parallel/instances/drive.py.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Protocol

import numpy as np

from collectives.progress import Pause
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

    def run(self, works: Sequence[Callable[[], None]]) -> None:
        """Call the works, each a pass over the layers of a net."""
        self.each(works)

    def passes(
        self,
        forwards: Sequence[Callable[[], None]],
        middle: Callable[[], object],
        backwards: Sequence[Callable[[], None]],
    ) -> None:
        """Call the forward passes of all nets, `middle` in the calling thread, then their backward passes."""
        self.run(forwards)
        middle()
        self.run(backwards)

    def each(self, works: Sequence[Callable[[], object]]) -> None:
        """Call all works, none of which waits for messages."""
        for work in works:
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


class Threads(Hook):
    """Base of drives in which other threads compute while the main thread advances messages."""

    def __init__(self, *transfers: Transfer):
        super().__init__(*transfers)
        self._moved = threading.Condition()
        self._left = 0  # works that have not ended
        self._further = threading.Event()  # a thread has computed a layer, waits, or has finished
        self._stop: BaseException | None = None  # of the main thread, to be raised in the threads that compute

    def run(self, works: Sequence[Callable[[], None]]) -> None:
        """Call the works in other threads while this thread advances messages; re-raise their exceptions here."""
        with self._under_way(works):
            self.advance(lambda: not self._left)

    @contextmanager
    def _under_way(self, works: Sequence[Callable[[], None]]) -> Iterator[None]:
        """Call the works in other threads during a block; then wait for all, or abandon them if the block fails."""
        self._left = len(works)
        self.begin(works)
        try:
            yield
        except BaseException as error:
            self.abandon(error)
            raise
        self.end()

    def advance(self, is_done: Callable[[], bool]) -> None:
        """Advance messages until the threads that compute have come so far; each step of theirs sets `_further`."""
        pause = Pause()
        while not is_done():
            moved = any([transfer.progress() for transfer in self.transfers])
            if moved:
                with self._moved:
                    self._moved.notify_all()
            if all(transfer.idle() for transfer in self.transfers):
                self._further.wait()
            else:
                pause.after(moved, self._further.wait)
            self._further.clear()

    def call(self, work: Callable[[], None]) -> None:
        """Call a work, in a thread that computes, and note its end."""
        try:
            work()
        finally:
            with self._moved:
                self._left -= 1
            self._further.set()

    def between(self) -> None:
        """Wake the main thread, which sleeps while no message can advance."""
        self._further.set()

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Return once `is_done()`: where layers are computed wait for the main thread, elsewhere advance messages."""
        if not self.computes():
            return super().wait(is_done)
        self._further.set()
        with self._moved:
            self._moved.wait_for(lambda: is_done() or self._stop is not None)
        if self._stop is not None:
            raise self.stopped()

    def release(self, error: BaseException) -> None:
        """Wake the threads that compute, which may wait for messages that will not arrive, and raise there."""
        with self._moved:
            self._stop = self._stop or error
            self._moved.notify_all()

    # What differs with the number of threads that compute.

    def begin(self, works: Sequence[Callable[[], None]]) -> None:
        """Have the threads call `call` for their works."""
        raise NotImplementedError

    def end(self) -> None:
        """Raise an error of a work, all of which have ended."""
        raise NotImplementedError

    def computes(self) -> bool:
        """Return whether the calling thread is one that computes."""
        raise NotImplementedError

    def stopped(self) -> BaseException:
        """Return the error to raise in a thread that computes, once `release` was called."""
        assert self._stop is not None
        return self._stop

    def abandon(self, error: BaseException) -> None:
        """End the waits of the threads that compute, since the main thread has failed."""
        self.release(error)


class Helper(Threads):
    """A helper thread computes while the main thread advances messages.

    If the two share a core, the main thread has the higher priority. With equal priorities a message that arrives
    would wait until the helper's time slice ends, and the links would be unused until then.
    """

    name = "helper"

    def __init__(self, *transfers: Transfer):
        super().__init__(*transfers)
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._ended: SimpleQueue[BaseException | None] = SimpleQueue()  # an item for each work: its error, if any
        self._thread = threading.Thread(target=self._compute, name="compute", daemon=True)
        self._thread.start()

    def begin(self, works: Sequence[Callable[[], None]]) -> None:
        """Have the helper thread call the work, of which there is one."""
        (work,) = works
        self._work.put(work)

    def end(self) -> None:
        """Raise the work's error, if any."""
        if (failure := self._ended.get()) is not None:
            raise failure

    def computes(self) -> bool:
        """Return whether the calling thread is the helper."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """End the helper thread, and join it."""
        self._work.put(None)
        self._thread.join()

    def _compute(self) -> None:
        lower_priority()
        while (work := self._work.get()) is not None:
            failure: BaseException | None = None
            try:
                with np.errstate(all="ignore"):
                    self.call(work)
            except BaseException as error:  # re-raised in the main thread
                failure = error
            self._ended.put(failure)


def lower_priority() -> None:
    """Lower the calling thread's priority below that of the main thread, which calls MPI."""
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)


DRIVES: dict[str, type[Hook]] = {"hook": Hook, "helper": Helper}
