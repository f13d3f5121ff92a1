"""Sums: numbers that a layer sums over the ranks during a pass, such as the number of labels that count.

The computing thread requests a sum, and the thread that calls MPI computes it, together with the messages in flight. A
blocking call would hold back broadcasts that other ranks need before they can request the same sum. Layers request
sums in the same order on all ranks, one at a time, so the requests match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from collectives.loss import ignoring_loss
from scaffe.monitor.record import RANKS
from scaffe.parallel.meter import Meter
from scaffe.parallel.world import World

if TYPE_CHECKING:
    from mpi4py import MPI


class Sums:
    """Sums over the ranks, a transfer that a drive advances like propagation and aggregation.

    `wait_until(condition)` makes messages advance until the condition holds, in any thread.
    """

    def __init__(self, world: World, wait_until: Callable[[Callable[[], bool]], None]):
        self.meter = Meter("sums")
        self._world, self._wait_until = world, wait_until
        self._comm = world.comm.Dup()
        self._asked: np.ndarray | None = None
        self._request: MPI.Request | None = None

    def __call__(self, values: Sequence[float]) -> np.ndarray:
        """Return the sums of the values over all ranks, float64. Collective; called by the computing thread.

        It calls MPI only if this thread also advances messages.
        """
        sums = np.array(values, np.float64)
        self._asked = sums
        with self._world.record.waiting(RANKS):
            self._wait_until(self.idle)
        return sums

    def progress(self) -> bool:
        """Start a requested sum, or test whether it is complete; return whether either happened."""
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
        """Return whether no sum is requested or in flight. Calls no MPI."""
        return self._asked is None

    def break_off(self) -> None:
        """End the sums of all ranks, since one is lost. Not collective."""
        with ignoring_loss():
            if self._comm:  # not freed yet
                self._comm.Revoke()
        if self._request is not None:
            with ignoring_loss():
                self._request.Wait()

    def close(self) -> None:
        """Free the communicator. Collective."""
        self._comm.Free()
