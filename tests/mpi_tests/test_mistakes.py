"""A mistake of one rank in a call that the others have made before: all raise the same, and go on."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from collectives import ArgumentError, CollectiveError, Communicator, DisagreementError, waitall
from collectives.verbs import SCHEDULED

pytestmark = [pytest.mark.mpi, pytest.mark.mpi(min_size=2)]
COMM = MPI.COMM_WORLD
LENGTH = 1000


@pytest.fixture(scope="module")
def comm():
    made = Communicator(COMM)
    yield made
    made.free()


def ones() -> np.ndarray:
    return np.ones(LENGTH, "f4")


def works(comm: Communicator) -> None:
    """All ranks sum: what they had sent before would show."""
    array = ones()
    comm.allreduce(array)
    assert (array == comm.size).all()


def scheduled(over: Communicator, what: str, algorithm: str) -> None:
    getattr(over, what)(ones(), algorithm=algorithm)


KNOWN: dict[str, Callable[[Communicator], Any]] = {
    **{
        f"{what} {name}": partial(scheduled, what=what, algorithm=name)
        for what, verb in SCHEDULED.items()
        for name in ("mpi", "slices", "ring" if verb.has_blocks else "chain")
    },
    "allreduce of two arrays": lambda over: over.allreduce(ones(), ones()),
    "alltoall": lambda over: over.alltoall(np.ones(COMM.size * 4, "f4")),
    "alltoall of two arrays": lambda over: over.alltoall(*np.ones((2, COMM.size * 4), "f4")),
    "gather": lambda over: over.gather(ones(), np.ones(COMM.size * LENGTH, "f4")),
    "scatter": lambda over: over.scatter(np.ones(COMM.size * LENGTH, "f4"), ones()),
    "barrier": lambda over: over.barrier(),
}


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("odd", [0, COMM.size - 1])
def test_a_call_that_one_rank_alone_makes_new_is_named_on_all(comm, name, odd):
    """Its arguments are right in themselves."""
    over = comm.dup()
    KNOWN[name](over)
    for _ in range(2):
        with pytest.raises(DisagreementError, match="the ranks differ in the .*: rank 0 has .*, rank [1-9] has"):
            KNOWN[name](over) if comm.rank != odd else over.allreduce(np.ones(7))
            over.barrier()
        KNOWN[name](over)
        works(over)
    over.free()


@pytest.mark.parametrize("algorithm", ["mpi", "slices", "chain"])
def test_a_rank_that_has_gone_on_since_is_told_in_a_later_call(comm, algorithm):
    """A broadcast's root depends on nobody."""
    over, small = comm.dup(), np.ones(7, np.float32)
    for _ in range(2):
        over.bcast(small, algorithm=algorithm)
        over.allreduce(small)
    for odd in range(1, comm.size):
        with pytest.raises(CollectiveError, match=f"rank {odd}: send must be a numpy array, got list"):
            over.bcast([1.0] if comm.rank == odd else small, algorithm=algorithm)
            over.bcast(small, algorithm=algorithm)
            over.allreduce(small)
        works(over)
    over.free()


@pytest.mark.parametrize("algorithm", ["mpi", "slices", "ring"])
def test_requests_that_were_started_behind_a_mistake_fail_with_it_and_others_go_on(comm, algorithm):
    over, other, last = comm.dup(), comm.dup(), comm.size - 1
    said = f"rank {last}: send must be a numpy array, got list"
    for _ in range(2):
        waitall([one.iallreduce(ones(), algorithm=algorithm) for one in (over, over, other)])
    beside = [ones() for _ in range(2)]
    going = [other.iallreduce(one, algorithm=algorithm) for one in beside]
    before, behind = over.iallreduce(ones(), algorithm=algorithm), []
    with pytest.raises(ArgumentError, match=said if comm.rank != last else "send must be a numpy array, got list"):
        for _ in range(3):  # on other ranks the start of a later one may raise it
            behind.append(over.iallreduce([1.0] if comm.rank == last else ones(), algorithm=algorithm))
        waitall(behind)
    waitall(going[::-1])
    assert all((one == comm.size).all() for one in beside)
    before.wait()
    for one in behind[::-1]:
        with pytest.raises(ArgumentError, match=said):
            one.wait()
    works(over)
    works(other)
    for one in (other, over):
        one.free()


def test_a_mistake_is_told_to_who_waits_for_something_else(comm):
    over, other, last = comm.dup(), comm.dup(), comm.size - 1
    waitall([one.iallreduce(ones(), algorithm="ring") for one in (over, other)])
    if comm.rank == last:
        with pytest.raises(ArgumentError, match="got list"):
            over.iallreduce([1.0], algorithm="ring")
        other.iallreduce(ones(), algorithm="ring").wait()
    else:
        wrong, right = over.iallreduce(ones(), algorithm="ring"), other.iallreduce(ones(), algorithm="ring")
        right.wait()
        with pytest.raises(ArgumentError, match=f"rank {last}: .*got list"):
            wrong.wait()
    works(over)
    for one in (other, over):
        one.free()


def test_two_ranks_mistakes_are_one_error(comm):
    over = comm.dup()
    over.allreduce(ones())
    wrong: dict[int, dict[str, Any]] = {0: {"op": "mix"}, comm.size - 1: {"send": [1.0]}}
    with pytest.raises(CollectiveError, match="rank 0: unknown operation 'mix'"):
        over.allreduce(**{"send": ones()} | wrong.get(comm.rank, {}))
    works(over)
    over.free()


@pytest.mark.parametrize("algorithm", ["mpi", "slices", "ring"])
def test_a_plan_that_somebody_holds_stays_bound_to_its_arrays(comm, algorithm):
    """The rank that has erred takes part with other arrays."""
    over, array = comm.dup(), ones()
    plan = over.plan("allreduce", array, algorithm=algorithm)
    for _ in range(2):
        over.allreduce(array, algorithm=algorithm)
    with pytest.raises(ArgumentError, match="got list"):
        over.allreduce([1.0] if comm.rank == comm.size - 1 else array, algorithm=algorithm)
    array[:] = 1
    plan.run()
    assert (array == comm.size).all()
    over.free()


def test_a_call_that_the_root_alone_makes_before_the_same_new_one_is_named(comm):
    """All ranks are in the same call then, but it is not the same one."""
    over, small = comm.dup(), np.ones(7, np.float32)
    over.bcast(small)
    with pytest.raises(DisagreementError, match="the number of the call: rank 0 has '3', rank 1 has '2'"):
        if comm.rank == 0:
            over.bcast(small)
        over.allreduce(ones())
    works(over)
    over.free()


def test_calls_at_the_end_of_the_process_need_no_board(comm, monkeypatch):
    """A function that was registered before the first call runs after the board is freed."""
    at_exit: list[Callable[[], Any]] = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    over = comm.dup()
    works(over)
    for function in at_exit[::-1]:
        function()
    works(over)
    over.free()


def test_a_call_made_again_after_a_request_is_known_for_what_it_is(comm):
    over, array, other = comm.dup(), ones(), ones()[:7]
    for _ in range(2):
        over.allreduce(array)
        over.iallreduce(other).wait()
    with pytest.raises(ArgumentError, match="got list"):
        over.allreduce([1.0] if comm.rank == comm.size - 1 else array)
    works(over)
    over.free()
