"""HostWatch: notices stopped processes of this host that no StallWatch watches: ranks in set-up, and spares.

It needs no message and no shared memory, which a stopped process would not have made: /proc says that a process is
stopped, and how much CPU time it has had. A process that computes, reads or waits is not stopped, however long it does
so. Of the processes of a host that run, the lowest acts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from scaffe.files.prefix_lock import Owner
from scaffe.monitor.log import log
from scaffe.monitor.watching import ABORT, SAY, Watching
from scaffe.parallel.giving_up import kill
from scaffe.parallel.stall import LONGEST_NAP, end_job
from scaffe.parallel.world import World
from scaffe.process_state import state_of


def stopped_at(process: Owner) -> int | None:
    """Return the CPU time of a stopped process of this machine, in ticks; None for one that runs or has ended."""
    found = state_of(process.pid)
    return found.cpu if found and found.is_stopped and found.started == process.started else None


class Stop:
    """How long a process has been stopped: `seconds`, as far as they were watched; `is_met`: whether this was met."""

    def __init__(self, process: Owner):
        self.process = process
        self.runs()

    def runs(self) -> None:
        """Note that the process runs, or that another watch watches it."""
        self.seconds, self.is_met = 0.0, False
        self._ticks: int | None = None

    def look(self, seconds: float) -> None:
        """Count `seconds` since the last look, unless the process runs, or has run meanwhile."""
        if (ticks := stopped_at(self.process)) is None or ticks != self._ticks:
            self.runs()
            self._ticks = ticks
        else:
            self.seconds += seconds


class HostWatch:
    """A thread that looks for processes of this host that have been stopped for `seconds`. Not collective.

    `how`, one of STALL, says what happens to them. "shrink" kills them, and "abort" kills spares and ends the job for a
    rank; "say" logs a line. `is_watched(number)` returns whether a StallWatch watches the process that was started as
    rank `number`. Processes of other hosts, or that are hidden, are not watched.
    """

    def __init__(self, world: World, seconds: float, how: str, is_watched: Callable[[int], bool]):
        self.world, self.seconds, self.how, self._is_watched = world, seconds, how, is_watched
        self._me, self._nap = world.firsts[world.rank], min(LONGEST_NAP, seconds / 8)
        near = {number: process for number, process in enumerate(world.launched) if process.is_alive()}
        self._stops = {number: Stop(process) for number, process in near.items() if number != self._me}
        self._last = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="host watch", daemon=True)
        if self._stops:
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
        """Act on processes that have been stopped for so long, if this is the lowest that runs."""
        now = time.monotonic()
        passed, self._last = min(now - self._last, 2 * self._nap), now  # this process may have been stopped too
        for number, stop in self._stops.items():
            if self._is_watched(number):
                stop.runs()
                continue
            stop.look(passed)
            if stop.seconds >= self.seconds and not stop.is_met and self._is_lowest():
                stop.is_met = True
                self._meet(number, stop)

    def _is_lowest(self) -> bool:
        """Return whether all lower processes of this host have ended or are stopped."""
        lower = [stop.process for number, stop in self._stops.items() if number < self._me]
        return not any(process.is_alive() and stopped_at(process) is None for process in lower)

    def _meet(self, number: int, stop: Stop) -> None:
        """Kill a stopped process, end the job or log a line, as `how` says."""
        process, name = stop.process, self.world.name_of(number)
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
