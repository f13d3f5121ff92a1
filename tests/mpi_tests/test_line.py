"""Plans that were started and have not ended: what comes after them on their communicator neither mixes nor hangs."""

import numpy as np
import pytest
from mpi4py import MPI
from rank_values import LENGTH, RANK, SIZE, total, values

from collectives import ArgumentError, Communicator, Group, Staged

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
ALGORITHMS = ["mpi", "slices", "ring", "halving", "chain", "binomial", "leaders-ring"]


@pytest.fixture
def comm(request):
    """One rank a node, as if, for algorithms between nodes."""
    made = Communicator(COMM, group=Group.uniform(SIZE) if "leaders-ring" in request.node.name else None)
    yield made
    made.free()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_blocking_call_of_the_same_kind_waits_for_the_plan_before_it(comm, algorithm):
    first, second = values(1), values(2)
    for _ in range(3):
        plan = comm.plan("allreduce", first, algorithm=algorithm, chunk_bytes=1000)
        plan.start()
        comm.allreduce(second, algorithm=algorithm, chunk_bytes=1000)
        plan.finish()
        np.testing.assert_array_equal(first, total(1))
        np.testing.assert_array_equal(second, total(2))
        first[:], second[:] = values(1), values(2)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("later", ["ring", "mpi", "binomial"])
def test_plans_may_be_waited_for_in_any_order(comm, algorithm, later):
    first, second = values(1), values(2)[: LENGTH - 1]
    plans = [
        comm.plan("allreduce", first, algorithm=algorithm, chunk_bytes=1000),
        comm.plan("allreduce", second, algorithm=later, chunk_bytes=2000),
    ]
    for plan in plans:
        plan.start()
    for plan in plans if RANK % 2 else plans[::-1]:
        plan.finish()
    np.testing.assert_array_equal(first, total(1))
    np.testing.assert_array_equal(second, total(2)[:-1])


CALLS = {
    "plan": lambda comm: comm.plan("bcast", np.zeros(7)),
    "a blocking plan": lambda comm: comm.plan("bcast", np.zeros(9), algorithm="chain").run(),
    "blocking": lambda comm: comm.bcast(np.zeros(11)),
    "agree": lambda comm: comm.agree({"x": "y"}),
    "empty": lambda comm: comm.empty(3),
    "has_room": lambda comm: comm.has_room(1),
    "give_back": lambda comm: comm.give_back(),
    "explain": lambda comm: comm.explain("bcast", 8),
    "dup": lambda comm: comm.dup().free(),
    "Staged": lambda comm: Staged(comm, "allreduce", [np.zeros(5)]).free(),
}


@pytest.mark.parametrize("name", CALLS)
def test_ranks_may_wait_for_a_plan_before_or_after_a_blocking_call(comm, name):
    first = values(1)
    plan = comm.plan("allreduce", first, algorithm="ring")
    plan.start()
    if RANK == 0:
        plan.finish()
    CALLS[name](comm)
    plan.finish()
    np.testing.assert_array_equal(first, total(1))


def test_free_completes_what_is_under_way():
    comm, first = Communicator(COMM), values(1)
    plan = comm.plan("allreduce", first, algorithm="ring")
    plan.start()
    if RANK == 0:
        plan.finish()
    comm.free()
    np.testing.assert_array_equal(first, total(1))


def test_a_plan_under_way_is_neither_started_nor_bound_again(comm):
    first, second = values(1), values(2)
    plan = comm.plan("allreduce", first, algorithm="ring")
    held = np.zeros(1) if RANK == SIZE - 1 else None  # the last rank begins later: nobody's plan ends before
    if held is not None:
        COMM.Barrier()
    plan.start()
    if held is None:
        for wrong in (plan.start, lambda: plan.bind(second, second)):
            with pytest.raises(ArgumentError, match="a plan that is under way; finish it first"):
                wrong()
        COMM.Barrier()
    plan.finish()
    np.testing.assert_array_equal(first, total(1))
    plan.bind(second, second)
    plan.start()
    plan.finish()
    np.testing.assert_array_equal(second, total(2))
