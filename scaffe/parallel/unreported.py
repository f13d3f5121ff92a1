"""Unreported: notices processes of this host that have ended, and that MPI does not report as lost.

Where Open MPI tolerates faults, it reports a process that a signal has ended, and none that ends with an exit code
other than 0 (jobs/lab/mpi_exit.py): the other ranks would wait for it for ever. /proc shows that it has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from scaffe.files.prefix_lock import Owner
from scaffe.parallel.world import World


class Unreported:
    """Counts the looks in which a process of this host is seen to have ended.

    `local` holds the ranks of this host. `look` is to be called about every `nap` seconds while this rank waits. MPI
    has `seconds` to report a loss, in which this rank was running.
    """

    def __init__(self, world: World, local: Iterable[int], seconds: float, nap: float):
        self._world, self._most = world, seconds / nap
        self._firsts = {rank: world.firsts[rank] for rank in local}
        self._looks: Counter[int] = Counter()  # by rank

    def look(self) -> str:
        """Return a line on a rank whose process has ended without MPI's report, "" without one. Not collective."""
        reported = {one.first for one in self._world.lost}
        for rank, first in self._firsts.items():
            process = self._world.launched[first]
            if first not in reported and process.is_alive() is False:
                self._looks[rank] += 1
                if self._looks[rank] > self._most and not self._may_report():
                    return unreported(f"rank {rank}", process)
        return ""

    def _may_report(self) -> bool:
        """Return whether MPI knows of a lost rank, or can't be asked by this thread."""
        return not may_ask() or self._world.misses_any()


def may_ask() -> bool:
    """Return whether any thread may ask MPI for lost ranks."""
    from mpi4py import MPI

    return MPI.Query_thread() == MPI.THREAD_MULTIPLE


def unreported(name: str, process: Owner) -> str:
    """Return the line on a process that has ended without MPI's report."""
    return f"{name} (process {process.pid}) on {process.host} has ended, which MPI does not report"
