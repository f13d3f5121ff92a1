"""A window, over a made-up MPI in which a rank's writes are its own until it synchronises."""

import numpy as np
from mpi4py import MPI

from collectives.execution.window import SharedWindow


class Memory:
    """What MPI.Win is: a rank's copy of its segment, and the one that others see; `Sync` makes them equal."""

    def __init__(self, nbytes):
        self.private, self.public = np.full((2, nbytes), 0x5B, np.uint8)

    @classmethod
    def Allocate_shared(cls, nbytes, unit, comm):
        comm.win = cls(nbytes)
        return comm.win

    def Lock_all(self):
        pass

    def Shared_query(self, rank):
        return memoryview(self.private), 1

    def Sync(self):
        self.public[...] = self.private


class Comm:
    """One rank, which looks at what others see when they meet."""

    rank, size = 0, 1

    def allgather(self, given):
        self.seen = self.win.public.copy()
        return [given]


def test_others_see_zeros_from_the_beginning(monkeypatch):
    monkeypatch.setattr(MPI, "Win", Memory)
    comm = Comm()
    window = SharedWindow(comm, 100)
    start = window.own.__array_interface__["data"][0] - comm.win.private.__array_interface__["data"][0]
    assert not comm.seen[start : start + 100].any()
