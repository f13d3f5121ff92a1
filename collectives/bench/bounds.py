"""Times that no algorithm can go below, from what this machine's memory and links do in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from collectives.communicator import Communicator

TRIES, LEAST_SECONDS = 5, 1e-3  # the fastest try counts; a try takes at least so long
LINK_BYTES = 1 << 24  # what a node sends and receives to measure its links


class Bounds:
    """Lower bounds of a collective's time over the ranks of a communicator. All methods are collective.

    On one node memory decides. With P ranks and n bytes, whatever the algorithm does,
    - reduce reads each rank's contribution once and writes one result: (P + 1) n;
    - allreduce reads each contribution once and writes P results: 2 P n;
    - bcast reads the root's bytes once, as the others may read them from a cache that they share, and writes the
      P - 1 copies: P n.
    These go at the pace at which all ranks at once add arrays of the same total size in place, so that what fits in
    caches counts alike; in place, since no line is then read only to be overwritten, and the bound stays one.
    Below some 10 KB it is the time of a call of numpy.

    Over N nodes the links decide. The root's node, or each that gets a broadcast, takes in n bytes at least: n beta;
    in an allreduce each sends and takes in 2 n (N - 1) / N. Beta is a node's time per byte while every node sends to
    the next and receives from the one before, by as many ranks of each as all have.
    """

    def __init__(self, comm: Communicator):
        self.comm = comm.comm
        self.nodes = comm.group.nodes
        self.count = comm.shape.nodes
        self._beta: float | None = None

    def seconds(self, what: str, nbytes: int) -> float:
        """Return the bound of a reduce, bcast or allreduce of so many bytes."""
        if self.count > 1:
            moved = 2 * (self.count - 1) / self.count if what == "allreduce" else 1.0
            return nbytes * moved * self.beta()
        ranks = self.comm.size
        traffic = nbytes * {"reduce": ranks + 1, "allreduce": 2 * ranks, "bcast": ranks}[what]
        return traffic / self.bandwidth(traffic)

    def bandwidth(self, touched: int) -> float:
        """Return the bytes per second that all ranks together read and write, adding in so many bytes of memory."""
        count = max(1, touched // (8 * self.comm.size))  # two arrays of float32 a rank
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
        """Return the rank in such a place of a node, 0 if there is none."""
        there = [rank for rank, other in enumerate(self.nodes) if other == node]
        return there[local] if local < len(there) else 0

    def _fastest(self, work: Callable[[], None]) -> float:
        """Return the seconds of a call while all ranks call at once: the slowest rank's, in the fastest try."""
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
