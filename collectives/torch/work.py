"""CollectiveWork: a collective that PyTorch has started, and the thread that runs those of a process group.

A group runs its collectives one after the other, in the order of its calls. Those that the caller waits for at once run
in the caller, where nothing is before them and their plan is known; all others in the group's thread, so that messages
pass while the caller computes, and a wait can end in time whatever MPI does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, Protocol

import torch
import torch.distributed as dist

from collectives.torch.graphs import outside_graphs

SECOND = 1.0  # after which a waiting rank says so, and looks whether others have ended


OVER = threading.Event()
OVER.set()


class Waiter(Protocol):
    """What a work knows of its group."""

    def is_late(self, number: int, waits_until: float, what: str) -> Exception | None:
        """Say that this rank waits in a call; return the error where it has waited too long, or a rank has ended."""

    def breaks(self, error: Exception) -> Exception:
        """Take note that the group can't be used any more; return the error."""


class Followers:
    """Threads in which futures get their values: what follows one may wait for another collective."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._idle, self._lock = 0, threading.Lock()

    def call(self, function: Callable[[], object]) -> None:
        """Call this in a thread that nothing keeps."""
        with self._lock:
            is_new = self._idle == 0
            self._idle -= not is_new
        self._queue.put(function)
        if is_new:
            threading.Thread(target=self._run, name="followers of collectives", daemon=True).start()

    def _run(self) -> None:
        """Call what comes."""
        while True:
            self._queue.get()()
            with self._lock:
                self._idle += 1


FOLLOWERS = Followers()


@outside_graphs
class CollectiveWork(dist.Work):
    """A collective under way, as c10d's Work. Results are there, and contributions may be changed, after `wait`.

    - `number`: how many calls of the group, with this one.
    - `results`: the tensors that `get_future` and `result` give.
    - `seconds`: how long `wait` waits.
    """

    def __init__(self, group: Waiter, what: str, number: int, results: Any, seconds: float, is_in_caller: bool = False):
        super().__init__()
        self.what, self.number, self.seconds, self._group, self._results = what, number, seconds, group, results
        self.is_in_caller = is_in_caller  # then nobody sees it before its end
        self._ended, self._lock = OVER if is_in_caller else threading.Event(), threading.Lock()
        self._error: Exception | None = None
        self._begun: Any = None  # a future that ends with the collective, and the one of its value
        self._future: Any = None
        self.source = -1  # of a receive from any rank

    def attempt(self, job: Callable[[CollectiveWork], object]) -> Exception | None:
        """Do the collective, to its end; return its error."""
        try:
            with torch.no_grad():
                job(self)
        except Exception as error:
            return error
        return None

    def end(self, error: Exception | None = None) -> None:
        """Mark it as complete."""
        if self.is_in_caller:
            self._error = error
            return
        with self._lock:
            self._error = error
            self._ended.set()
            begun = self._begun
        if begun is not None:
            FOLLOWERS.call(lambda: begun.set_result(None))

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return once it is complete. Raise DistBackendError where it fails, or ranks don't come in time."""
        given = timeout.total_seconds() if timeout else 0.0
        end = time.monotonic() + (given if given > 0 else self.seconds)
        while not self._ended.wait(max(0.0, min(SECOND, end - time.monotonic()))):
            error = self._group.is_late(self.number, end, self.what)
            if error is not None and not self._ended.is_set():
                raise error if given > 0 else self._group.breaks(error)
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """Wait."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether it has ended, well or not."""
        return self._ended.is_set()

    def is_success(self) -> bool:
        """Return whether it has ended well."""
        return self._ended.is_set() and self._error is None

    def exception(self) -> Exception | None:
        """Return the error that ended it."""
        return self._error

    def result(self) -> Any:
        """Return the result tensors."""
        return self._results

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future of the result tensors."""
        with self._lock:
            if self._future is None:
                self._begun = torch.futures.Future()
                self._future = self._begun.then(lambda _: self._value())
                if self._ended.is_set():
                    self._begun.set_result(None)
            return self._future

    def _value(self) -> Any:
        """Return the result tensors, or raise the error: so C++ sees it too, as a RuntimeError of the same text."""
        if self._error is not None:
            raise self._error
        return self._results

    def _source_rank(self) -> int:
        """Return the rank that a message came from."""
        return self.source

    def source_rank(self) -> int:
        """Return the rank that a message came from."""
        return self.source


class GroupThread:
    """The thread of a process group; it starts with the first collective that is not run in the caller."""

    def __init__(self, name: str):
        self._name, self._thread = name, None  # type: tuple[str, threading.Thread | None]
        self._queue: SimpleQueue[tuple[CollectiveWork, Callable[[CollectiveWork], object]] | None] = SimpleQueue()
        self._count, self._lock = 0, threading.Lock()  # of works that have not ended

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is under way."""
        return self._count == 0

    def put(self, work: CollectiveWork, job: Callable[[CollectiveWork], object]) -> None:
        """Run this after all that was put before."""
        with self._lock:
            self._count += 1
        self._queue.put((work, job))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def end(self, seconds: float) -> bool:
        """End the thread once all has run; return whether it has ended within so many seconds."""
        if self._thread is None:
            return True
        self._queue.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        """Run what comes, until the end."""
        while (given := self._queue.get()) is not None:
            work, job = given
            error = work.attempt(job)
            with self._lock:  # before the end shows: who waits for it may go on in the caller
                self._count -= 1
            work.end(error)
            del given, work, job, error  # so that no tensors are kept
