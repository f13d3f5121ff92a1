"""CUDA IPC, NCCL and the order of streams on a real GPU, which several ranks may share.

jobs/mpirun.sh -n 4 python -m mpi4py -m pytest --with-mpi -m mpi tests/device_tests
"""

import os

import numpy as np
import pytest
from a_gpu_of_ours import DEVICE, GPU, MISSING, cupy, needs_gpu, spin
from device_arrays import compare, rows
from mpi4py import MPI

from collectives import ArgumentError, Communicator, Staged, bench
from collectives.execution.device import aware
from collectives.execution.device.nccl import SHARING, NcclPlan
from collectives.execution.device.plans import PeerPlan

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
FLOAT = np.dtype("f4")
LENGTH = 307 if MISSING else 300_007
COUNT = 1 << (8 if MISSING else 20)


@pytest.fixture(scope="module")
def comm():
    made = Communicator(COMM, device=DEVICE)
    yield made
    made.free()


def busy(stream, array):
    """Keep a stream busy for about 0.1 s, then set an array to rank + 1."""
    with stream:
        spin()
        array.fill(COMM.rank + 1)


# Mapped memory.


@needs_gpu
def test_a_handle_goes_with_the_offset_in_the_pools_allocation():
    array = cupy.zeros(5000, np.float32)
    handle, offset = DEVICE.export(array)
    assert (handle, offset + 4 * 1234) == DEVICE.export(array[1234:])
    assert len(handle) == 64
    other = cupy.zeros(100, np.float32)  # of the pool, so that it may lie in the same allocation
    assert DEVICE.export(other)[1] % 512 == 0


@needs_gpu
@pytest.mark.mpi(min_size=2)
def test_slices_of_arrays_anywhere_in_the_pool(comm):
    everyone, held = rows(comm.size, 777, FLOAT), []
    for length in (1, 100, 50_000, 3_000_000):
        held.append(cupy.zeros(length, np.float32))
        room = cupy.zeros(length + 2 * 777, np.float32)
        send, recv = room[length : length + 777], room[length + 777 :]
        send.set(everyone[comm.rank])
        compare(comm, "allreduce", send, recv, everyone, "sum", 0, algorithm="slices")
    assert isinstance(comm.plan("allreduce", send, algorithm="slices"), PeerPlan)


@pytest.mark.mpi(min_size=2)
def test_memory_that_two_plans_map_stays_mapped_until_both_let_go(comm):
    other, array = comm.dup(), cupy.full(1000, comm.rank, np.float32)
    total = sum(range(comm.size))
    comm.allreduce(array, algorithm="slices")
    other.allreduce(array, op="max", algorithm="slices")
    other.free()
    comm.allreduce(array, algorithm="slices")
    assert (array.get() == total * comm.size).all()


@pytest.mark.mpi(min_size=2)
def test_memory_that_the_pool_gave_back_and_took_again_is_mapped_anew(comm):
    pool = cupy.get_default_memory_pool()
    for length in (4 * COUNT, 8 * COUNT, 4 * COUNT):
        array = cupy.full(length, comm.rank + 1, np.float32)
        comm.allreduce(array, algorithm="slices")
        assert (array.get() == comm.size * (comm.size + 1) / 2).all()
        comm.forget()
        COMM.Barrier()
        del array
        pool.free_all_blocks()


# Streams.


@pytest.mark.parametrize("algorithm", ["mpi", "slices", "ring", "nccl"])
@pytest.mark.parametrize("way", ["staged", "as the library says"])
def test_a_stage_waits_for_its_own_mark_and_followers_wait_for_the_stage(monkeypatch, algorithm, way):
    if way == "staged":
        monkeypatch.setenv(aware.VARIABLE, "0")
    made = Communicator(COMM, device=DEVICE)
    array = cupy.zeros(COUNT, np.float32)
    GPU.wait()  # as the other streams don't
    computing, elsewhere = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    staged = Staged(made, "allreduce", [array], algorithm=algorithm, chunk_bytes=COUNT)
    for _ in range(3):
        busy(computing, array)
        staged.start()
        with computing:
            staged.ready(0)
        while not staged.done():
            staged.progress()
        with elsewhere:
            staged.follow()
            assert (array.get() == COMM.size * (COMM.size + 1) / 2).all()
    staged.free()
    made.free()


@pytest.mark.parametrize("algorithm", ["mpi", "slices", "ring", "nccl"])
def test_one_call_after_the_other_needs_no_waiting(comm, algorithm):
    stream = cupy.cuda.Stream(non_blocking=True)
    array = cupy.zeros(COUNT, np.float32)
    GPU.wait()
    with stream:
        for _ in range(3):
            busy(stream, array)
            comm.allreduce(array, algorithm=algorithm)
            array /= COMM.size
            comm.bcast(array, COMM.size - 1, algorithm="chain" if algorithm == "ring" else algorithm)
        assert (array.get() == (COMM.size + 1) / 2).all()


# NCCL.


def nccl_problem():
    try:
        DEVICE.nccl()
    except ArgumentError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("what", ["reduce", "bcast", "allreduce"])
def test_nccl_takes_every_call_even_of_one_rank(what):
    if problem := nccl_problem():
        pytest.skip(problem)
    alone = Communicator(MPI.COMM_SELF, device=DEVICE)
    for dtype in ("f2", "f4", "f8", "i4", "i8"):
        everyone = rows(1, 1000, np.dtype(dtype))
        send, recv = cupy.asarray(everyone[0]), cupy.zeros(1000, dtype)
        for op in ("sum", "max", "min", *(["mean"] if dtype[0] == "f" else [])):
            compare(alone, what, send, recv, everyone, op, 0, algorithm="nccl")
            recv.fill(0)
        assert isinstance(alone.plan(what, send, algorithm="nccl"), NcclPlan)
    alone.free()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("what", ["reduce", "bcast", "allreduce"])
def test_nccl_or_what_stands_for_it_gives_numpys_numbers(comm, what):
    everyone = rows(comm.size, LENGTH, FLOAT)
    for root in {0, comm.size - 1}:
        send, recv = cupy.asarray(everyone[comm.rank]), cupy.zeros(LENGTH, np.float32)
        compare(comm, what, send, recv, everyone, "sum", root, algorithm="nccl")


@needs_gpu
@pytest.mark.mpi(min_size=2)
def test_ranks_that_share_a_gpu_are_found_out(comm):
    shared = len(set(COMM.allgather(DEVICE.identity))) < comm.size
    if shared and not nccl_problem() and os.environ.get(SHARING) != "1":
        assert comm.device_plans.why_no_nccl.startswith("NCCL takes one rank a GPU, and ranks ")


# The benchmark.


@needs_gpu
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("op", ["reduce", "bcast", "allreduce", "ireduce"])
@pytest.mark.parametrize("way", ["staged", "as the library says"])
def test_the_benchmark_finds_all_ways_right(monkeypatch, op, way):
    if way == "staged":
        monkeypatch.setenv(aware.VARIABLE, "0")
    given = ["-d", "cuda", "-c", "-m", "4096:65536", "-i", "5", "-x", "1", "--algorithm", "auto,mpi,slices,chain"]
    assert bench.main([op, *given]) == 0
