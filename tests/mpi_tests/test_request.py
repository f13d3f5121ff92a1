"""Requests: any order of waits ends, a wait may end early, and a thread advances what nobody waits for."""

import time

import numpy as np
import pytest
from mpi4py import MPI
from patience import patient
from rank_values import LENGTH, RANK, SIZE, total, values

from collectives import ArgumentError, Communicator, Request, Staged, WaitTimeout, waitall, waitany
from collectives.progress import PROGRESS
from collectives.verbs import SCHEDULED

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
ALGORITHMS = ["mpi", "ring", "halving", "slices"]


@pytest.fixture
def threaded():
    made = Communicator(COMM, progress="thread")
    yield made
    PROGRESS.end_thread()
    made.free()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_ranks_wait_for_requests_of_two_communicators_in_different_orders(comm, algorithm):
    other = comm.dup()
    arrays = [values(seed) for seed in range(6)]
    requests = [(comm, other)[i % 2].iallreduce(one, algorithm=algorithm) for i, one in enumerate(arrays)]
    for request in requests if RANK % 2 else requests[::-1]:
        request.wait()
    for seed, one in enumerate(arrays):
        np.testing.assert_array_equal(one, total(seed))
    other.free()


@pytest.mark.parametrize("name", SCHEDULED)
def test_every_verb_that_is_started_gives_the_numbers_of_the_blocking_one(comm, name):
    send, again = values(1), values(1)
    getattr(comm, name)(send, algorithm="mpi")
    request = getattr(comm, f"i{name}")(again, algorithm="mpi")
    assert isinstance(request, Request)
    request.wait()
    bounds = np.arange(SIZE + 1) * LENGTH // SIZE
    part = slice(*SCHEDULED[name].result(RANK, 0, bounds.tolist()))
    np.testing.assert_array_equal(again[part], send[part])


@pytest.mark.parametrize("name", ["gather", "scatter", "alltoall", "barrier"])
def test_the_librarys_verbs_can_be_started_too(comm, name):
    whole = np.arange(SIZE * 4.0)
    arguments = {
        "gather": (whole[4 * RANK : 4 * RANK + 4].copy(), np.zeros(4 * SIZE) if RANK == 0 else None),
        "scatter": (whole if RANK == 0 else None, np.zeros(4)),
        "alltoall": (whole.copy(), np.zeros(4 * SIZE)),
        "barrier": (),
    }[name]
    request = getattr(comm, f"i{name}")(*arguments)
    request.wait()
    expected = {"gather": whole, "scatter": whole[4 * RANK :][:4], "alltoall": np.tile(whole[4 * RANK :][:4], SIZE)}
    if name in expected and arguments[1] is not None:
        np.testing.assert_array_equal(arguments[1], expected[name])


def test_test_advances_until_it_is_complete(comm):
    array = values(2)
    request = comm.iallreduce(array, algorithm="ring", chunk_bytes=1000)
    while not request.test():
        pass
    assert request.is_complete and request.test()
    np.testing.assert_array_equal(array, total(2))


def test_waitany_returns_one_that_is_complete_and_waitall_all(comm):
    arrays = [values(seed) for seed in range(4)]
    requests = [comm.iallreduce(one, algorithm="ring") for one in arrays]
    first = waitany(requests)
    assert requests[first].is_complete
    np.testing.assert_array_equal(arrays[first], total(first))
    waitall(requests)
    for seed, one in enumerate(arrays):
        np.testing.assert_array_equal(one, total(seed))


@pytest.mark.mpi(min_size=2)
def test_a_wait_may_end_early_and_go_on_later(comm):
    array = values(3)
    comm.allreduce(array.copy(), algorithm="ring")  # the plan is known: no rank waits for another to make it
    if RANK == 0:
        request = comm.iallreduce(array, algorithm="ring")
        for wait in (request.wait, lambda seconds: waitall([request], seconds), lambda s: waitany([request], s)):
            with pytest.raises(WaitTimeout, match="waited 0.01 s for .*, which is still under way"):
                wait(0.01)
        assert not request.is_complete
        COMM.send(None, 1)
    else:
        if RANK == 1:
            COMM.recv(source=0)
        request = comm.iallreduce(array, algorithm="ring")
    request.wait()
    np.testing.assert_array_equal(array, total(3))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_thread_of_the_process_completes_what_nobody_waits_for(threaded, algorithm):
    arrays = [values(seed) for seed in range(3)]
    requests = [threaded.iallreduce(one, algorithm=algorithm, chunk_bytes=1000) for one in arrays]

    def are_complete(_: float) -> bool:
        time.sleep(1e-3)
        return all(one.is_complete for one in requests)

    assert patient(are_complete, 60), "the thread has completed nothing in a minute"
    for seed, one in enumerate(arrays):
        np.testing.assert_array_equal(one, total(seed))
    threaded.allreduce(arrays[0])


def test_a_thread_needs_a_level_that_allows_it(monkeypatch):
    monkeypatch.setattr(MPI, "Query_thread", lambda: MPI.THREAD_SERIALIZED)
    with pytest.raises(ArgumentError, match="progress 'thread' needs MPI_THREAD_MULTIPLE"):
        Communicator(COMM, progress="thread")


@pytest.mark.parametrize("timeout", [-1, "1", float("nan"), []])
def test_a_timeout_that_is_none_is_named(comm, timeout):
    request = comm.ibarrier()
    if not request.is_complete:
        with pytest.raises(ArgumentError, match="timeout must be seconds from 0 on, or None"):
            request.wait(timeout)
    request.wait()


def test_what_is_no_request_is_named(comm):
    for wait in (waitall, waitany):
        for wrong in ([None], 3, [comm], (one for one in "ab")):
            with pytest.raises(ArgumentError, match="expected a list of requests"):
                wait(wrong)
    with pytest.raises(ArgumentError, match="waitany needs a request"):
        waitany([])
    waitall([])


def test_an_error_of_a_request_is_raised_at_each_wait_and_the_next_goes_on(comm, monkeypatch):
    from collectives.execution.plans import SchedulePlan

    def fails(self, wait):
        raise MPI.Exception(MPI.ERR_ARG)
        yield

    with monkeypatch.context() as patched:
        patched.setattr(SchedulePlan, "steps", fails)
        array = values(4)
        comm.plan("allreduce", array, algorithm="ring")
        with pytest.raises(MPI.Exception):
            comm.iallreduce(array, algorithm="ring")
    comm.allreduce(array, algorithm="ring")
    np.testing.assert_array_equal(array, total(4))


@pytest.mark.parametrize("name", ["reduce", "bcast"])
def test_each_stage_may_have_a_root_of_its_own(comm, name):
    roots = [(i + 1) % SIZE for i in range(2 * SIZE + 1)]
    arrays = [values(seed) for seed in range(len(roots))]
    staged = Staged(comm, name, arrays, root=roots)
    for _ in range(2):
        for seed, one in enumerate(arrays):
            one[:] = values(seed)
        staged.start(ready=True)
        staged.wait()
        for seed, (root, one) in enumerate(zip(roots, arrays, strict=True)):
            moved = values(seed) - RANK + root
            expected = moved if name == "bcast" else total(seed) if root == RANK else values(seed)
            np.testing.assert_array_equal(one, expected)
    staged.free()


@pytest.mark.parametrize("algorithm", ["auto", "ring", "halving", "slices"])
def test_stages_of_blocks(comm, algorithm):
    counts = [[(rank + i) % 3 * 100 for rank in range(SIZE)] for i in range(3)]
    arrays = [values(seed)[: sum(each)].copy() for seed, each in enumerate(counts)]
    sums = Staged(comm, "reduce_scatter", arrays, counts=counts, algorithm=algorithm)
    whole = Staged(comm, "allgather", arrays, counts=counts, algorithm=algorithm)
    for staged in (sums, whole):
        staged.start(ready=True)
        staged.wait()
        staged.free()
    for seed, (each, one) in enumerate(zip(counts, arrays, strict=True)):
        np.testing.assert_array_equal(one, total(seed)[: sum(each)])


def test_wrong_roots_and_counts_of_stages_are_named(comm):
    for given, said in (
        ({"root": [0, 0]}, "root has 2 ranks, for 1 stages"),
        ({"root": [SIZE]}, f"root {SIZE} is not one of"),
        ({"counts": [[1] * SIZE]}, "reduce has no blocks, and takes no counts"),
        ({"counts": [None, None]}, "counts has 2 arrays, for 1 stages"),
    ):
        with pytest.raises(ArgumentError, match=said):
            Staged(comm, "reduce", [values(0)], **given)
    with pytest.raises(ArgumentError, match="Staged has no gather; it has reduce, bcast"):
        Staged(comm, "gather", [values(0)])
