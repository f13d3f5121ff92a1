"""A training of one rank without others: they are lost whenever a test says so, and take part in nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from mpi4py import MPI

from collectives import RankLostError
from scaffe.compute import Compute
from scaffe.monitor.watching import Watching
from scaffe.parallel import maker
from scaffe.parallel.mpi_library import FAULT_TOLERANT
from scaffe.parallel.reserve import LostRank
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.proto import SolverParameter
from scaffe.training.solver import Solver

UNWATCHED = Watching(stall_seconds=0)


class OneLeft(World):
    """A World of several ranks, of which this process is the first, and the others' part in each sum is nothing.

    Each time that it shrinks the ranks `losing` are lost; it stays as large as it is, so that nothing else changes.
    """

    def __init__(self) -> None:
        super().__init__(Tolerant(MPI.COMM_SELF.Dup()))
        self.size, self.losing = 3, [1]
        self.places, self.pids, self.gpus = self.size * self.places, self.size * self.pids, self.size * self.gpus
        self.firsts = [*range(self.size)]
        self.launched += 2 * [replace(self.launched[0], started=0)]  # which have ended

    def shrink(self) -> list[LostRank]:
        """Return the ranks that are lost."""
        lost = [LostRank(rank, self.host, self.pids[rank], rank) for rank in self.losing]
        self.lost += lost
        return lost


class Tolerant(MPI.Intracomm):
    """A communicator of one rank, of an MPI that tolerates faults."""

    def Revoke(self) -> None:
        """Do nothing: none waits."""

    def Agree(self, flag: int) -> int:
        """Return this rank's flag."""
        return flag

    def Get_failed(self) -> MPI.Group:
        """Return no rank: what is lost is noticed by an error."""
        return MPI.GROUP_EMPTY


def solver(monkeypatch, param: SolverParameter, run: Run, watching: Watching = UNWATCHED, **given: Any) -> Solver:
    """Return the solver of a rank that goes on where the other is lost. Updates may be early, as between nodes."""
    monkeypatch.setitem(os.environ, FAULT_TOLERANT, "1")
    monkeypatch.setattr(maker, "may_update_early", lambda run, nodes, nbytes: True)
    return Solver(param, world=OneLeft(), compute=Compute(engine="reference"), run=run, watching=watching, **given)


def lose(monkeypatch, owner: Any, name: str, call: int = 1, then: Callable[[], object] = lambda: None) -> list[int]:
    """Lose the other rank at the begin of that call of a function of a class or module, after `then()`.

    Return a list that gets a value once that has happened.
    """
    function, calls, lost = getattr(owner, name), [0], list[int]()

    @wraps(function)
    def losing(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            lost.append(call)
            then()
            raise RankLostError(f"in call {call} of {name}")
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, losing)
    return lost
