"""HostWatch: notices what no StallWatch does: stopped and ended processes of this host, and a rank long in its set-up.

It needs no message and no shared memory, which a stopped process would not have made: /proc says that a process is
stopped, and how much CPU time it has had. A process that computes, reads or waits is not stopped, however long it does
so. Of the processes of a host that run, the lowest acts. It also ends the job where a process has ended, and MPI does
not report it (see unreported.py): a rank for which others wait in set-up, or a spare, for which they would wait.

Each rank watches itself as well: if it stays in one part of its set-up, and waits for no other rank, it says where it
is. It may be in an endless loop, or read a large file, so that nothing else is done.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from scaffe.lock_owner import Owner
from scaffe.monitor.log import log
from scaffe.monitor.record import OPERATION, SET_UP, SINCE, WAIT, unpacked
from scaffe.monitor.watching import ABORT, SAY, Watching
from scaffe.parallel.giving_up import kill
from scaffe.parallel.stall import LONGEST_NAP, end_job
from scaffe.parallel.unreported import Missed, may_ask, unreported
from scaffe.parallel.world import World
from scaffe.process_state import state_of


def stopped_at(process: Owner) -> int | None:
    """Return the CPU time of a stopped process of this machine, in ticks; None for one that runs or has ended."""
    found = state_of(process.pid)
    return found.cpu if found and found.is_stopped and found.started == process.started else None


class Stand:
    """How long something has stood still: `seconds`, as far as they were watched; `is_met`: whether this was met."""

    seconds, is_met = 0.0, False
    _mark: int | None = None

    def look(self, mark: int | None, seconds: float) -> None:
        """Count `seconds` since the last look, unless there is no mark of a standstill, or another one than before."""
        if mark is None or mark != self._mark:
            self.seconds, self.is_met, self._mark = 0.0, False, mark
        else:
            self.seconds += seconds


class HostWatch:
    """A thread that looks for processes of this host that have been stopped for `seconds`. Not collective.

    `how`, one of STALL, says what happens to them. "shrink" kills them, and "abort" kills spares and ends the job for a
    rank; "say" logs a line. `is_watched(number)` returns whether a StallWatch watches the process that was started as
    rank `number`. Processes of other hosts, or that are hidden, are not watched. The set-up is that of the thread that
    makes this object.
    """

    def __init__(self, world: World, seconds: float, how: str, is_watched: Callable[[int], bool]):
        self.world, self.seconds, self.how, self._is_watched = world, seconds, how, is_watched
        self._me, self._nap = world.firsts[world.rank], min(LONGEST_NAP, seconds / 8)
        near = {number: process for number, process in enumerate(world.launched) if process.is_alive() is not None}
        self._processes = {number: process for number, process in near.items() if number != self._me}
        self._stops = {number: Stand() for number in self._processes}
        self._missed = Missed(seconds, self._nap)
        self._set_up, self._main = Stand(), threading.get_ident()
        self._last = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="host watch", daemon=True)
        if self._stops or world.size > 1:
            self._thread.start()

    def end(self) -> None:
        """End the thread."""
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._nap):
            self.look()

    def look(self) -> None:
        """Act on processes that have been stopped for so long, if this is the lowest that runs; look at the set-up."""
        now = time.monotonic()
        passed, self._last = min(now - self._last, 2 * self._nap), now  # this process may have been stopped too
        for number, stop in self._stops.items():
            stop.look(None if self._is_watched(number) else stopped_at(self._processes[number]), passed)
            if stop.seconds >= self.seconds and not stop.is_met and self._is_lowest():
                stop.is_met = True
                self._meet(number, stop)
        for number, process in self._processes.items():
            if self._missed.look(number, self._is_missed(number)) and self._is_lowest():
                end_job(self.world, [unreported(self.world.name_of(number), process)])
        self._set_up.look(self._set_up_since(), passed)
        if self._set_up.seconds >= self.seconds and not self._set_up.is_met:
            self._set_up.is_met = True
            self._say_where()

    def _is_missed(self, number: int) -> bool:
        """Return whether a process has ended, MPI does not report it, and others wait, or will wait, for it."""
        if self.world.is_spare or self._processes[number].is_alive() is not False or not may_ask():
            return False
        if self.world.has_spare(number):
            return not self.world.misses_spare(number)
        row = unpacked(self.world.record.row)
        waits = number in self.world.firsts and row[OPERATION] == SET_UP and row[WAIT] > 0
        return waits and not self._is_watched(number) and number not in self.world.missed()

    def _set_up_since(self) -> int | None:
        """Return since when this rank is in this part of its set-up, ns; None if it waits, or is not in set-up."""
        if self.world.size == 1 or self._is_watched(self._me):
            return None
        row = unpacked(self.world.record.row)
        return row[SINCE] if row[OPERATION] == SET_UP and not row[WAIT] else None

    def _say_where(self) -> None:
        """Log where this rank is in its set-up."""
        if frame := sys._current_frames().get(self._main):
            code, who = frame.f_code, f"{self.world.name_of(self._me)} on {self.world.host}"
            text = "Stall: %s has been in set-up for %.0f s without waiting for another rank: %s, line %d, in %s"
            log.warning(text, who, self._set_up.seconds, code.co_filename, frame.f_lineno, code.co_name)

    def _is_lowest(self) -> bool:
        """Return whether all lower processes of this host have ended or are stopped."""
        lower = [process for number, process in self._processes.items() if number < self._me]
        return not any(process.is_alive() and stopped_at(process) is None for process in lower)

    def _meet(self, number: int, stop: Stand) -> None:
        """Kill a stopped process, end the job or log a line, as `how` says."""
        process, name = self._processes[number], self.world.name_of(number)
        who = f"{name} on {process.host}"
        if self.how == SAY:
            text = "Stall: %s is stopped: its process %d has not run for %.0f s; continue it (kill -CONT), or kill it"
            log.warning(text, who, process.pid, stop.seconds)
        elif self.how == ABORT and not self.world.has_spare(number):
            end_job(self.world, [f"{who} is stopped: its process {process.pid} has not run for {stop.seconds:.0f} s"])
        else:
            kill(process, f"{who} is given up: its process has not run for {stop.seconds:.0f} s")


def open_host_watch(world: World, watching: Watching, is_watched: Callable[[int], bool]) -> None:
    """Give the World a watch in place of its former one, unless stalls are not watched; `watching` is not checked."""
    if world.host_watch is not None:
        world.host_watch.end()
    asked = isinstance(watching, Watching) and watching.stall_seconds > 0
    world.host_watch = HostWatch(world, watching.stall_seconds, watching.at_stall, is_watched) if asked else None
