"""Unreported: notices processes of this host that have ended, and that MPI does not report as lost.

Where Open MPI tolerates faults, it reports a process that a signal has ended, and none that ends with an exit code
other than 0 (jobs/lab/mpi_exit.py): the other ranks would wait for it for ever. /proc shows that it has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from scaffe.lock_owner import Owner
from scaffe.parallel.world import World


class Missed:
    """Counts the looks in a row in which a process is missed, by its number.

    A look is taken about every `nap` seconds while this process runs; so its own pauses do not count.
    """

    def __init__(self, seconds: float, nap: float):
        self._most = seconds / nap
        self._looks: Counter[int] = Counter()

    def look(self, number: int, is_missed: bool) -> bool:
        """Count a look; return whether the process has been missed for longer than `seconds`."""
        self._looks[number] = self._looks[number] + 1 if is_missed else 0
        return self._looks[number] > self._most


class Unreported:
    """Notices ranks of this host whose processes have ended.

    `local` holds the ranks of this host. `look` is to be called about every `nap` seconds while this rank waits. MPI
    has `seconds` to report a loss.
    """

    def __init__(self, world: World, local: Iterable[int], seconds: float, nap: float):
        self._world, self._missed = world, Missed(seconds, nap)
        self._firsts = {rank: world.firsts[rank] for rank in local}

    def look(self) -> str:
        """Return a line on a rank whose process has ended without MPI's report, "" without one. Not collective."""
        for rank, first in self._firsts.items():
            process = self._world.launched[first]
            is_missed = not self._is_reported(first) and process.is_alive() is False
            if not self._missed.look(first, is_missed) or not may_ask() or first in self._world.missed():
                continue
            if not self._is_reported(first):  # again: shrink sets `lost` before `comm`, which misses it no longer
                return unreported(f"rank {rank}", process)
        return ""

    def _is_reported(self, first: int) -> bool:
        return any(one.first == first for one in self._world.lost)


def may_ask() -> bool:
    """Return whether any thread may ask MPI for lost ranks."""
    from mpi4py import MPI

    return MPI.Query_thread() == MPI.THREAD_MULTIPLE


def unreported(name: str, process: Owner) -> str:
    """Return the line on a process that has ended without MPI's report."""
    return f"{name} (process {process.pid}) on {process.host} has ended, which MPI does not report"
