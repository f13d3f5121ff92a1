"""Revocable: how a communicator is given up once a rank of it is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np

from collectives.loss import ignoring_loss, raises_rank_lost
from collectives.mismatch import Mismatch

if TYPE_CHECKING:
    from mpi4py import MPI

    from collectives.execution.maker import Call, PlanMaker
    from collectives.execution.node import NodeComm
    from collectives.execution.plans import Plan


class Revocable:
    """What a Communicator does once a rank of it is lost. Methods are not collective unless their text says so."""

    comm: MPI.Intracomm
    node: NodeComm
    _local: MPI.Intracomm
    _maker: PlanMaker
    _mismatch: Mismatch
    _owns: bool
    _plans: dict[tuple[Call, int], Plan]

    def __init__(self) -> None:
        self._dups: WeakSet[Revocable] = WeakSet()

    def revoke(self) -> None:
        """End all waits in collectives of this communicator and its dups, on all ranks, with RankLostError.

        Then wait for the messages of this rank that are under way: they end with an error too.
        """
        for comm in filter(None, (self.comm, self._local, self._maker.cross, self._mismatch.comm)):
            with ignoring_loss():
                comm.Revoke()
        for other in self._dups:
            other.revoke()
        for plan in self._plans.values():
            plan.drain()

    @raises_rank_lost
    def take_over(self, earlier: Sequence[Revocable], size: int, count: int) -> list[np.ndarray]:
        """Return `count` arrays of `size` float32, windows of communicators that have lost ranks, as they are.

        Collective. `earlier` were given up by `abandon(False)`. No lost rank may run any more: it could write there.
        Return no arrays, on all ranks, where the ranks of a node do not have the same windows.
        """
        nodes, float32 = [one.node for one in earlier], np.dtype(np.float32)
        windows, processes = self.node.common(nodes, size * float32.itemsize, count)
        if not all(self.comm.allgather(len(windows) == count)):
            return []
        self.node.take_over(windows, processes, nodes)
        return [window.array((size,), float32) for window in windows]

    def abandon(self, windows: bool = True) -> None:
        """Drop plans and windows, since ranks are lost; the object can't be used any more.

        The arrays that `empty` returned lose their values, unless `windows` is False: then their memory stays until
        a later call with True, or the end of the process. Call this after a collective of the ranks that are left,
        such as MPI's Shrink: until then one of them may be writing to this rank's arrays.
        """
        for other in self._dups:
            other.abandon()
        self._mismatch.abandon()
        self._plans.clear()
        if self._owns:
            self.node.abandon(windows)
