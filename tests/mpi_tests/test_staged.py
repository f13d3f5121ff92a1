"""Staged collectives give what blocking ones give, in whatever order and by whatever thread stages become ready."""

import gc
import threading

import numpy as np
import pytest
from mpi4py import MPI

from collectives import ArgumentError, Communicator, DisagreementError, Group, Staged

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
LENGTHS = (100, 0, 3000, 7, 1, 513, 513, 20000)
ALGORITHMS = {
    "reduce": ["auto", "mpi", "slices", "chain", "binomial", "cb-2", "cb-2:levels", "two-tree"],
    "bcast": ["auto", "mpi", "slices", "chain", "two-tree"],
    "allreduce": ["auto", "mpi", "slices", "ring", "halving", "binomial"],
}
CASES = [(what, algorithm) for what, algorithms in ALGORITHMS.items() for algorithm in algorithms]


def draw(seed):
    """Return one array of each length, another on each rank and for each seed."""
    generator = np.random.default_rng([COMM.rank, seed])
    return [generator.standard_normal(length).astype(np.float32) for length in LENGTHS]


def fill(arrays, seed):
    for array, values in zip(arrays, draw(seed), strict=True):
        array[...] = values


def compare(got, want, algorithm):
    """Schedules have one order of adding; the library's may differ between its blocking and non-blocking forms."""
    for array, expected in zip(got, want, strict=True):
        if algorithm in ("auto", "mpi", "leaders-mpi"):
            np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-6)
        else:
            assert array.tobytes() == expected.tobytes()


def blocking(comm, what, arrays, root, **how):
    """Do to copies what the stages do to the arrays, one after the other."""
    copies = [array.copy() for array in arrays]
    for array in copies:
        if what == "allreduce":
            comm.allreduce(array, **how)
        else:
            getattr(comm, what)(array, root=root, **how)
    return copies


@pytest.mark.parametrize("lanes", [1, 2, 5])
@pytest.mark.parametrize(("what", "algorithm"), CASES)
def test_stages_give_the_bits_of_blocking_collectives(comm, what, algorithm, lanes):
    arrays, root, how = draw(0), comm.size - 1, {"algorithm": algorithm, "chunk_bytes": 1000}
    staged = Staged(comm, what, arrays, root=root, lanes=lanes, **how)
    for seed in range(3):
        fill(arrays, seed)
        want = blocking(comm, what, arrays, root, **how)
        staged.start()
        for stage in np.random.default_rng([seed, comm.rank]).permutation(len(staged)):
            staged.ready(stage)
            staged.progress()
        for stage in reversed(range(len(staged))):
            staged.wait(stage)
        if what != "reduce" or comm.rank == root:
            compare(arrays, want, algorithm)
    staged.free()
    with pytest.raises(ArgumentError, match="this Staged has been freed"):
        staged.start()


@pytest.mark.parametrize("algorithm", ["chain", "mpi", "slices"])
def test_another_thread_makes_stages_ready_while_this_one_waits(comm, algorithm):
    sends, sums = draw(0), [np.zeros(length, np.float32) for length in LENGTHS]
    staged = Staged(comm, "allreduce", sends, sums, algorithm=algorithm)
    for seed in range(5):
        staged.start()

        def backward(seed=seed):
            for stage, values in enumerate(draw(seed)):
                sends[stage][...] = values
                staged.ready(stage)

        thread = threading.Thread(target=backward)
        thread.start()
        staged.wait(len(staged) - 1)
        staged.wait()
        thread.join()
        compare(sums, blocking(comm, "allreduce", draw(seed), 0, algorithm=algorithm), algorithm)
    staged.free()


@pytest.mark.parametrize("algorithm", ["auto", "mpi", "slices", "binomial"])
def test_two_staged_collectives_go_on_side_by_side_in_any_order(comm, algorithm):
    gradients, parameters = draw(0), draw(1)
    aggregate = Staged(comm, "reduce", gradients, algorithm=algorithm)
    propagate = Staged(comm, "bcast", parameters, algorithm=algorithm)
    fill(gradients, 2)
    want = [blocking(comm, "reduce", gradients, 0, algorithm=algorithm), blocking(comm, "bcast", parameters, 0)]
    aggregate.start(ready=True)
    propagate.start(ready=True)
    both = [aggregate, propagate] if comm.rank % 2 else [propagate, aggregate]
    while not all(staged.done() for staged in both):
        for staged in both:
            staged.progress()
    if comm.rank == 0:
        compare(gradients, want[0], algorithm)
    compare(parameters, want[1], "bcast")
    propagate.free()
    aggregate.free()


ORDERS = pytest.mark.parametrize("algorithm", ["auto", "mpi", "slices", "ring"])


def turned(*things):
    """Return the things in this rank's order: each rank begins with another."""
    first = COMM.rank % len(things)
    return [*things[first:], *things[:first]]


@ORDERS
@pytest.mark.parametrize("apart", [False, True], ids=["one communicator", "two"])
def test_ranks_may_wait_in_any_order(comm, algorithm, apart):
    other = comm.dup() if apart else comm
    many = [Staged(over, "allreduce", draw(0), algorithm=algorithm) for over in (comm, other)]
    for seed in range(3):
        for staged in many:
            for array in arrays_of(staged):
                array[...] = seed
            staged.start(ready=True)
        for staged in turned(*many):
            staged.wait(len(staged) - 1)
            staged.wait()
        assert all((array == seed * comm.size).all() for staged in many for array in arrays_of(staged))
    assert not comm.progress.is_busy
    for staged in many:
        staged.free()
    if apart:
        other.free()


@ORDERS
def test_ranks_may_wait_for_stages_and_plans_in_any_order(comm, algorithm):
    lanes, arrays = [comm.dup() for _ in range(2)], [np.full(1000, 1, np.float32) for _ in range(3)]
    plans = [lane.plan("allreduce", array, algorithm=algorithm) for lane, array in zip(lanes, arrays[:2], strict=True)]
    staged = Staged(comm, "allreduce", arrays[2:], algorithm=algorithm)
    staged.start(ready=True)
    for plan in plans:
        plan.start()
    for wait in turned(staged.wait, plans[0].finish, plans[1].finish):
        wait()
    assert all((array == comm.size).all() for array in arrays) and not comm.progress.is_busy
    staged.free()
    for lane in lanes:
        lane.free()


@pytest.mark.skipif(MPI.Query_thread() < MPI.THREAD_SERIALIZED, reason="one thread calls MPI here")
@ORDERS
def test_two_threads_wait_each_for_its_own(comm, algorithm):
    many = [Staged(comm, "allreduce", draw(0), algorithm=algorithm) for _ in range(2)]
    for staged in many:
        for array in arrays_of(staged):
            array[...] = 1
        staged.start(ready=True)
    first, second = turned(*many)
    thread = threading.Thread(target=second.wait)
    thread.start()
    first.wait()
    thread.join()
    assert all((array == comm.size).all() for staged in many for array in arrays_of(staged))
    for staged in many:
        staged.free()


def arrays_of(staged):
    """Return the stages' arrays."""
    return [plan.send for plan in staged._plans]


def test_a_thread_that_may_not_call_mpi_is_told_so(comm, monkeypatch):
    staged = Staged(comm, "allreduce", draw(0))
    staged.start(ready=True)
    monkeypatch.setattr(MPI, "Query_thread", lambda: MPI.THREAD_FUNNELED)
    told = []

    def wait():
        with pytest.raises(ArgumentError, match="only the thread that has started MPI may wait") as error:
            staged.wait()
        told.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert told
    staged.wait()
    staged.free()


def test_what_is_freed_or_dropped_is_advanced_no_more(comm):
    for let_go in (Staged.free, lambda staged: None):
        staged = Staged(comm, "allreduce", draw(0))
        staged.start()
        assert comm.progress.is_busy
        let_go(staged)
        del staged
        gc.collect()
        assert not comm.progress.is_busy


def test_stages_in_shared_windows_and_over_nodes(comm):
    nodes = Communicator(COMM, group=Group.uniform(COMM.size))
    for over, algorithm in ((comm, "slices"), (nodes, "leaders-chain"), (nodes, "leaders-mpi")):
        arrays = [over.empty(length) for length in LENGTHS]
        fill(arrays, 3)
        want = blocking(over, "allreduce", arrays, 0, algorithm=algorithm)
        staged = Staged(over, "allreduce", arrays, algorithm=algorithm)
        staged.start(ready=True)
        staged.wait()
        compare(arrays, want, algorithm)
        staged.free()
    nodes.free()


def test_a_stage_is_done_when_it_has_come_to_its_end(comm):
    arrays = draw(0)
    staged = Staged(comm, "bcast", arrays)
    assert staged.done()
    staged.start()
    assert not staged.done() and not staged.done(0)
    staged.ready(0)
    staged.wait(0)
    assert staged.done(0) and not staged.done(1) and not staged.progress()
    for stage in range(1, len(staged)):
        staged.ready(stage)
    staged.wait()
    assert staged.done() and not staged.progress()
    staged.free()


def test_misuse_is_told_with_the_stage(comm):
    staged = Staged(comm, "bcast", draw(0))
    staged.start()
    staged.ready(0)
    with pytest.raises(ArgumentError, match="stage 0 is already ready"):
        staged.ready(0)
    with pytest.raises(ArgumentError, match="stage 8 is not one of 8"):
        staged.ready(8)
    with pytest.raises(ArgumentError, match="stage 0 has not been completed since the last start"):
        staged.start()
    for stage in range(1, 8):
        staged.ready(stage)
    staged.wait()
    staged.free()
    with pytest.raises(ArgumentError, match="lanes is 0"):
        Staged(comm, "bcast", draw(0), lanes=0)


@pytest.mark.parametrize("algorithm", ["mpi", "slices", "binomial"])
def test_nothing_is_freed_while_a_stage_is_under_way_on_any_rank(comm, algorithm):
    last, arrays = comm.size - 1, draw(0)
    staged = Staged(comm, "allreduce", arrays, algorithm=algorithm)
    want = blocking(comm, "allreduce", arrays, 0, algorithm=algorithm)
    staged.start()
    if comm.rank == last:
        staged.ready(0)
        staged.ready(2)
    with pytest.raises(ArgumentError, match=f"stage 0 is under way on rank {last}; wait for it before free"):
        staged.free()
    staged.progress()
    with pytest.raises(ArgumentError, match=f"stage . is under way on rank {last}; wait for it before free"):
        staged.free()
    for stage in range(len(staged)):
        if comm.rank != last or stage not in (0, 2):
            staged.ready(stage)
    staged.wait()
    compare(arrays, want, algorithm)
    staged.free()
    staged.free()


def test_what_was_started_and_never_ready_can_be_freed(comm):
    staged = Staged(comm, "allreduce", draw(0))
    assert staged.all_ready
    staged.start()
    assert not staged.all_ready
    staged.free()


@pytest.mark.mpi(min_size=2)
def test_ranks_that_differ_are_told_when_it_is_made(comm):
    arrays = draw(0)
    with pytest.raises(DisagreementError, match="the number of stages: rank 0 has '7', rank 1 has '8'"):
        Staged(comm, "reduce", arrays[:7] if comm.rank == 0 else arrays)
    arrays[2] = arrays[2][: 3000 - comm.rank]
    with pytest.raises(DisagreementError, match="the number of elements: rank 0 has '3000', rank 1 has '2999'"):
        Staged(comm, "reduce", arrays)
