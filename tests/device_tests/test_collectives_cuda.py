"""Collectives on CuPy arrays, on a real GPU, which several ranks may share; on few numbers over a stand-in else.

jobs/mpirun.sh -n 4 python -m mpi4py -m pytest --with-mpi -m mpi tests/device_tests
"""

import numpy as np
import pytest
from a_gpu_of_ours import DEVICE, MISSING, cupy, needs_gpu
from device_arrays import compare, rows
from mpi4py import MPI

from collectives import Communicator
from collectives.execution.device import aware
from collectives.execution.operations import OPERATIONS, TYPES

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]
COMM = MPI.COMM_WORLD
TREES = ["chain", "binomial", "flat", "two-tree", "cb-2", "cc-2"]
ALGORITHMS = {"reduce": TREES, "bcast": TREES, "allreduce": [*TREES, "ring", "halving"]}
CASES = [(what, name) for what, names in ALGORITHMS.items() for name in ["auto", "mpi", "slices", *names]]
WAYS = ["staged"] if MISSING else ["staged", "as the library says"]
LENGTH = 307 if MISSING else 300_007
CHUNK = 1 << (8 if MISSING else 16)


@pytest.fixture(scope="module", params=WAYS)
def comm(request):
    made = Communicator(COMM, device=DEVICE)
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "staged":
            patch.setenv(aware.VARIABLE, "0")
        made.allreduce(made.empty(1, device="cuda"), algorithm="chain")  # asks the variable
    yield made
    made.free()


def check(comm, what, dtype, op="sum", **how):
    """Run one collective for two roots, in place and not, without synchronisation, and compare the results."""
    everyone = rows(COMM.size, LENGTH, dtype)
    for root in {0, comm.size - 1}:
        send, recv = cupy.asarray(everyone[comm.rank]), cupy.zeros(LENGTH, dtype)
        compare(comm, what, send, recv, everyone, op, root, **how)


@pytest.mark.parametrize(("what", "algorithm"), CASES)
def test_every_algorithm_on_the_gpu_gives_numpys_numbers(comm, what, algorithm):
    check(comm, what, np.dtype("f4"), algorithm=algorithm, chunk_bytes=CHUNK)


@pytest.mark.parametrize("dtype", [*TYPES][:2] if MISSING else TYPES, ids=str)
@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("algorithm", ["mpi", "slices", "cb-2"])
def test_every_kernel_gives_numpys_numbers(comm, op, dtype, algorithm):
    if op == "mean" and dtype.kind == "i":
        pytest.skip("no mean of whole numbers")
    check(comm, "allreduce", dtype, op, algorithm=algorithm, chunk_bytes=CHUNK)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("algorithm", ["chain", "halving"])
def test_a_gpu_gives_the_hosts_bits(comm, algorithm, dtype):
    host = np.random.default_rng(comm.rank).standard_normal(LENGTH).astype(dtype)
    host[comm.rank] = np.nan
    for op in OPERATIONS:
        values, ours = host.copy(), cupy.asarray(host)
        comm.allreduce(values, op=op, algorithm=algorithm, chunk_bytes=CHUNK)
        comm.allreduce(ours, op=op, algorithm=algorithm, chunk_bytes=CHUNK)
        np.testing.assert_array_equal(ours.get(), values)


@pytest.mark.parametrize("numbers", ["bf16", "float16", "int8", "int8+feedback"])
@pytest.mark.parametrize("algorithm", ["chain", "ring"])
def test_a_gpu_rounds_messages_to_the_hosts_bits(comm, algorithm, numbers):
    host, ours = np.zeros(LENGTH, np.float32), cupy.zeros(LENGTH, np.float32)
    for turn in range(3):
        host[:] = np.random.default_rng([comm.rank, turn]).standard_normal(LENGTH)
        ours.set(host)
        for array in (host, ours):
            comm.plan("allreduce", array, algorithm=algorithm, chunk_bytes=CHUNK, numbers=numbers).run()
        np.testing.assert_array_equal(ours.get(), host)


def test_what_the_caller_has_under_way_on_a_stream_of_its_own_is_waited_for(comm):
    with cupy.cuda.Stream(non_blocking=True):
        array = cupy.zeros(1 << (8 if MISSING else 24), np.float32)
        for _ in range(50):
            array += 1
        comm.allreduce(array, algorithm="ring", chunk_bytes=16 * CHUNK)
        array += 1
        assert (array.get() == 50 * comm.size + 1).all()


@needs_gpu
@pytest.mark.mpi(min_size=2)
def test_ranks_of_a_node_map_each_others_memory(comm):
    assert comm.device_plans.why_no_peers == ""
