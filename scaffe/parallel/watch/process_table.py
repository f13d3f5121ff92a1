"""ProcessTable: the probe that finds what no record says: processes of this host that are stopped, or have ended.

It needs no message and no shared memory, which a stopped process would not have made: /proc says that a process is
stopped, and how much CPU time it has had. A process that computes, reads or waits is not stopped, however long it does
so. Of the processes of a host that run, the lowest acts.

Where Open MPI tolerates faults, it reports a process that a signal has ended, and none that ends with an exit code
other than 0 (jobs/lab/mpi_exit.py): the other ranks would wait for it for ever. /proc shows that it has ended. MPI has
the stall time to report it.

Each rank looks at itself as well: if it stays in one part of its set-up, and waits for no other rank, it says where it
is. It may be in an endless loop, or read a large file, so that nothing else is done.
"""

from __future__ import annotations

import sys
import threading
import time

from scaffe.files.lock_owner import Owner
from scaffe.files.process_state import state_of
from scaffe.monitor.log import log
from scaffe.monitor.record import OPERATION, SET_UP, SINCE, WAIT, unpacked
from scaffe.monitor.watching import Watching
from scaffe.parallel.watch.policy import Policy
from scaffe.parallel.watch.watch import Probe, Standstill, nap_of
from scaffe.parallel.world import World


def stopped_at(process: Owner) -> int | None:
    """Return the CPU time of a stopped process of this machine, in ticks; None for one that runs or has ended."""
    found = state_of(process.pid)
    return found.cpu if found and found.is_stopped and found.started == process.started else None


def may_ask() -> bool:
    """Return whether any thread may ask MPI for lost ranks."""
    from mpi4py import MPI

    return MPI.Query_thread() == MPI.THREAD_MULTIPLE


class ProcessTable(Probe):
    """A probe of the processes of this host, by the ranks that they were started as; `how` is one of STALL.

    A process whose records a Heartbeats gets is not stopped for this probe. Processes of other hosts, or that are
    hidden, are not watched. The set-up is that of the thread that makes this object.
    """

    def __init__(self, world: World, seconds: float, how: str):
        self.world, self.seconds, self.policy, self.nap = world, seconds, Policy(world, how), nap_of(seconds)
        self._me = world.firsts[world.rank]
        near = {number: process for number, process in enumerate(world.launched) if process.is_alive() is not None}
        self._processes = {number: process for number, process in near.items() if number != self._me}
        self._stops = {number: Standstill() for number in self._processes}
        self._missed = {number: Standstill() for number in self._processes}
        self._set_up, self._main = Standstill(), threading.get_ident()
        self._last = time.monotonic()

    @property
    def is_needed(self) -> bool:
        """Whether there is a process to look at."""
        return bool(self._processes) or self.world.size > 1

    def look(self) -> None:
        """Act on processes that have been stopped, or missed, for so long; look at the set-up."""
        now = time.monotonic()
        passed, self._last = min(now - self._last, 2 * self.nap), now  # this process may have been stopped too
        for number, process in self._processes.items():
            stop, missed = self._stops[number], self._missed[number]
            stop.look(None if self._is_covered(number) else stopped_at(process), passed)
            if stop.reaches(self.seconds) and self._is_lowest():
                stop.is_met = True
                self.policy.is_stopped(number, process, stop.seconds)
            missed.look(True if self._is_missed(number) else None, passed)
            if missed.seconds >= self.seconds and (self._is_covered(number) or self._is_lowest()):
                who = f"{self.world.name_of(number)} (process {process.pid}) on {process.host}"
                self.policy.has_ended(f"{who} has ended, which MPI does not report")
        self._set_up.look(self._set_up_since(), passed)
        if self._set_up.reaches(self.seconds):
            self._set_up.is_met = True
            self._say_where()

    def _is_covered(self, number: int) -> bool:
        return any(self.world.watch.over(number))

    def _is_missed(self, number: int) -> bool:
        """Return whether a process has ended, MPI does not report it, and others wait, or will wait, for it."""
        world = self.world
        if world.is_spare or self._processes[number].is_alive() is not False or not may_ask():
            return False
        if world.has_spare(number):
            return not world.misses_spare(number)
        # Twice: shrink sets `lost` before `comm`, which misses it no longer.
        is_reported = self._is_lost(number) or number in world.missed() or self._is_lost(number)
        return self._is_waited_for(number) and not is_reported

    def _is_lost(self, number: int) -> bool:
        return any(one.first == number for one in self.world.lost)

    def _is_waited_for(self, number: int) -> bool:
        """Return whether this rank acts for those that wait for a rank: in training by its records, else by its own."""
        if probes := list(self.world.watch.over(number)):
            return any(one.is_stuck() for one in probes)
        return number in self.world.firsts and unpacked(self.world.record.row)[WAIT] > 0

    def _set_up_since(self) -> int | None:
        """Return since when this rank is in this part of its set-up, ns; None if it waits, or is not in set-up."""
        if self.world.size == 1 or self._is_covered(self._me):
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


def watch_processes(world: World, watching: Watching) -> None:
    """Let a World's watch look at the process table, unless stalls are not watched; `watching` is not checked.

    The probe takes the place of a former solver's.
    """
    world.watch.remove(world.process_table)
    world.process_table = None
    if isinstance(watching, Watching) and watching.stall_seconds > 0:
        probe = ProcessTable(world, watching.stall_seconds, watching.at_stall)
        if probe.is_needed:
            world.process_table = probe
            world.watch.add(probe)
