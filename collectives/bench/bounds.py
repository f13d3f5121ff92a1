"""Lower bounds of a collective's time, from the speed of this machine's memory and links in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from collectives.communicator import Communicator
from collectives.verbs import SCHEDULED

TRIES, LEAST_SECONDS = 5, 1e-3  # the fastest try counts; a try takes at least these seconds
LINK_BYTES = 1 << 24  # bytes that a node sends and receives to measure its links


class Bounds:
    """Lower bounds of a collective's time over the ranks of a communicator. All methods are collective.

    On one node memory decides: every algorithm moves at least what `Verb.touched` says.

    The speed is that at which all ranks together add arrays of the same total size in place, so that caches count
    alike. In place no line is read only to be overwritten, so the bound holds. Below some 10 KB it is the time of a
    NumPy call.

    Over N nodes the links decide: a node sends or receives at least what `Verb.moved` says of N places. Beta is a
    node's time per byte while every node sends to the next and receives from the one before, with the same number of
    ranks on each.
    """

    def __init__(self, comm: Communicator):
        self.comm = comm.comm
        self.nodes = comm.group.nodes
        self.count = comm.shape.nodes
        self._beta: float | None = None

    def seconds(self, what: str, nbytes: int) -> float:
        """Return the bound of a verb over `nbytes` bytes, in seconds."""
        verb = SCHEDULED[what]
        if self.count > 1:
            return nbytes * verb.moved(self.count) * self.beta()
        ranks = self.comm.size
        traffic = round(nbytes * verb.touched(ranks))
        return traffic / self.bandwidth(traffic)

    def bandwidth(self, touched: int) -> float:
        """Return the bytes per second that all ranks together move while they add within `touched` bytes of memory."""
        count = max(1, touched // (8 * self.comm.size))  # two arrays of float32 per rank
        one, other = np.zeros(count, np.float32), np.zeros(count, np.float32)

        def add() -> None:
            np.add(one, other, out=one)

        return 3 * one.nbytes * self.comm.size / self._fastest(add)

    def beta(self) -> float:
        """Return the seconds per byte of a node's links, used in both directions; measured once."""
        if self._beta is None:
            ranks = min(self.nodes.count(node) for node in set(self.nodes))
            node = self.nodes[self.comm.rank]
            local = self.nodes[: self.comm.rank].count(node)
            out, into = np.zeros(LINK_BYTES // ranks, np.uint8), np.zeros(LINK_BYTES // ranks, np.uint8)
            to, source = (self._rank((node + step) % self.count, local) for step in (1, -1))

            def shift() -> None:
                if local < ranks:
                    self.comm.Sendrecv(out, to, recvbuf=into, source=source)

            self._beta = self._fastest(shift) / (out.nbytes * ranks)
        return self._beta

    def _rank(self, node: int, local: int) -> int:
        """Return the rank with number `local` on a node, 0 if there is none."""
        there = [rank for rank, other in enumerate(self.nodes) if other == node]
        return there[local] if local < len(there) else 0

    def _fastest(self, work: Callable[[], None]) -> float:
        """Return the seconds of a call that all ranks make together: the slowest rank's, in the fastest try."""
        best, times = float("inf"), 1
        for _ in range(TRIES):
            times = max(times, 1 if best == float("inf") else round(LEAST_SECONDS / best))
            self.comm.Barrier()
            start = time.perf_counter()
            for _ in range(times):
                work()
            taken = self.comm.allreduce((time.perf_counter() - start) / times, MPI.MAX)
            best = min(best, taken)
        return best
