"""Sums: numbers that a layer adds up over the ranks in mid-pass, such as how many labels count.

The thread that computes asks, the one that talks MPI makes the sum, among the messages that are under way: a blocking
call there would keep back broadcasts that other ranks need before they can ask too. Layers ask in the same order on
all ranks, one at a time, so the sums meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from scaffe.monitor.record import RANKS
from scaffe.parallel.meter import Meter
from scaffe.parallel.world import World

if TYPE_CHECKING:
    from mpi4py import MPI


class Sums:
    """Sums over the ranks, as one more way that a drive lets go on.

    `wait_until(condition)` lets messages go on until that holds, whichever thread calls it.
    """

    def __init__(self, world: World, wait_until: Callable[[Callable[[], bool]], None]):
        self.meter = Meter("sums")
        self._world, self._wait_until = world, wait_until
        self._comm = world.comm.Dup()
        self._asked: np.ndarray | None = None
        self._request: MPI.Request | None = None

    def __call__(self, values: Sequence[float]) -> np.ndarray:
        """Return the sums of several numbers over all ranks, float64. Collective; called by the thread that computes.

        It calls no MPI unless this is the thread that lets messages go on.
        """
        sums = np.array(values, np.float64)
        self._asked = sums
        with self._world.record.waiting(RANKS):
            self._wait_until(self.idle)
        return sums

    def progress(self) -> bool:
        """Begin a sum that was asked for, or see whether it is made; return whether anything moved."""
        if self._asked is None:
            return False
        if self._request is None:
            from mpi4py import MPI

            self._request = self._comm.Iallreduce(MPI.IN_PLACE, self._asked)
            return True
        if not self._request.Test():
            return False
        self._asked = self._request = None
        return True

    def idle(self) -> bool:
        """Say whether no sum is asked for or under way. Calls no MPI."""
        return self._asked is None

    def close(self) -> None:
        """Give back the communicator. Collective."""
        self._comm.Free()
