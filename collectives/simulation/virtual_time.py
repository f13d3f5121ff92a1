"""Virtual time: processes that take turns, each in a thread of its own, by a clock that only events advance.

A process is plain code that blocks, such as a rank's training loop. It runs until it calls `pause`; the scheduler then
takes the next event, which may resume it. One thread runs at a time, so nothing needs a lock, and a simulation gives
the same result each time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from threading import Lock, Thread

from collectives.errors import ScheduleError


class Cancelled(BaseException):
    """Ends a process whose simulation has failed."""


class Scheduler:
    """Events by time, in seconds: `now` is the time of the present one."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, int, Callable[[], object]]] = []
        self._count = 0
        self._processes: list[Process] = []

    def at(self, seconds: float, action: Callable[[], object], last: bool = False) -> None:
        """Call `action` at a time, not before now; with `last` after all other events of that time."""
        self._count += 1
        heapq.heappush(self._events, (seconds, int(last), self._count, action))

    def start(self, work: Callable[[], object]) -> Process:
        """Return a new process, which begins now."""
        process = Process(work)
        self._processes.append(process)
        self.at(self.now, process.resume)
        return process

    def run(self) -> None:
        """Process all events. Raise a process's exception, and ScheduleError where processes wait forever."""
        try:
            while self._events:
                self.now, _, _, action = heapq.heappop(self._events)
                action()
            stuck = sum(not process.ended for process in self._processes)
            if stuck:
                raise ScheduleError(f"{stuck} of {len(self._processes)} simulated ranks wait forever")
        finally:
            for process in self._processes:
                process.cancel()


class Process:
    """A thread that runs only between `resume`, which the scheduler calls, and its own `pause`, or its end."""

    def __init__(self, work: Callable[[], object]):
        self._work = work
        self._failure: BaseException | None = None
        self._may_run, self._may_schedule = Lock(), Lock()
        self._may_run.acquire()
        self._may_schedule.acquire()
        self._cancelled = self._begun = self.ended = False
        self._thread = Thread(target=self._main, daemon=True)

    def resume(self) -> None:
        """Run the process until it pauses. Raise its exception, and ScheduleError where there is no thread for it."""
        if self._begun:
            self._may_run.release()
        else:
            self._start()
        self._may_schedule.acquire()
        if self._failure is not None:
            raise self._failure

    def _start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError as error:
            raise ScheduleError(f"too many simulated ranks, each of which is a thread: {error}") from None
        self._begun = True

    def pause(self) -> None:
        """Let other events happen until `resume`; called by the process itself."""
        self._may_schedule.release()
        self._may_run.acquire()
        if self._cancelled:
            raise Cancelled

    def cancel(self) -> None:
        """End the process where it has not ended."""
        self._cancelled = True
        if self._begun and not self.ended:
            self._may_run.release()
            self._thread.join()

    def _main(self) -> None:
        try:
            self._work()
        except Cancelled:
            pass
        except BaseException as error:  # re-raised by `resume`
            self._failure = error
        self.ended = True
        self._may_schedule.release()
