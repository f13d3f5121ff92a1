"""Verbs of the MPI library, objects, types, operations and objects with memory, against plain numpy."""

import array

import numpy as np
import pytest
from mpi4py import MPI

from collectives import ArgumentError, Communicator, waitall
from collectives.execution.operations import KNOWN

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
EACH = 5


@pytest.fixture(scope="module")
def comm():
    made = Communicator(COMM)
    yield made
    made.free()


def blocks(dtype="f4"):
    """Return all ranks' blocks, (ranks x EACH)."""
    return np.arange(SIZE * EACH).reshape(SIZE, EACH).astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "i2", "c16", "S3", [("a", "f4"), ("b", "u1")]], ids=str)
def test_gather_scatter_and_alltoall_move_blocks_of_any_type(comm, dtype):
    whole = np.frombuffer(np.random.default_rng(1).bytes(SIZE * SIZE * EACH * np.dtype(dtype).itemsize), dtype)
    rows = whole.reshape(SIZE, SIZE * EACH)
    for root in {0, SIZE - 1}:
        recv = np.empty(SIZE * SIZE * EACH, dtype) if root == RANK else None
        comm.gather(rows[RANK].copy(), recv, root)
        assert root != RANK or recv.tobytes() == whole.tobytes()
        mine = np.empty(SIZE * EACH, dtype)
        comm.scatter(whole.copy() if root == RANK else None, mine, root)
        assert mine.tobytes() == rows[RANK].tobytes()
    given, taken = rows[RANK].copy(), np.empty(SIZE * EACH, dtype)
    comm.alltoall(given, taken)
    expected = b"".join(row[RANK * EACH : (RANK + 1) * EACH].tobytes() for row in rows)
    assert taken.tobytes() == expected
    comm.alltoall(given)
    assert given.tobytes() == expected


def test_blocks_of_other_lengths_and_in_place(comm):
    counts = [rank % 3 for rank in range(SIZE)]
    ends = np.cumsum([0, *counts])
    whole, block = np.arange(ends[-1], dtype=np.float64), slice(ends[RANK], ends[RANK + 1])
    recv = np.full(ends[-1], -1.0)
    comm.gather(whole[block].copy(), recv if RANK == 0 else None, counts=counts)
    assert RANK or (recv == whole).all()
    mine = np.empty(counts[RANK])
    comm.scatter(whole if RANK == 0 else None, mine, counts=counts)
    assert (mine == whole[block]).all()
    held = np.where(np.arange(ends[-1]) // 1 == -1, 0, -1.0)
    held[block] = whole[block]
    comm.gather(MPI.IN_PLACE if RANK == 0 else held[block], held if RANK == 0 else None, counts=counts)
    assert RANK or (held == whole).all()
    comm.barrier()


@pytest.mark.parametrize("algorithm", ["mpi", "ring", "slices", "halving"])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "g", "c8", "c16", "?"])
@pytest.mark.parametrize("op", [op for op in KNOWN if op != "mean"])
def test_every_operation_that_a_type_has(comm, algorithm, dtype, op):
    kind = np.dtype(dtype)
    rows = np.random.default_rng(3).integers(0, 3, (SIZE, 13)).astype(kind)
    if kind.kind not in KNOWN[op].kinds:
        with pytest.raises(ArgumentError, match=f"there is no {op} of {kind}"):
            comm.allreduce(rows[RANK].copy(), op=op, algorithm=algorithm)
        return
    recv = np.empty(13, kind)
    comm.allreduce(rows[RANK].copy(), recv, op, algorithm=algorithm)
    expected = KNOWN[op].ufunc.reduce(rows, 0).astype(kind)
    np.testing.assert_array_equal(recv, expected)
    comm.allreduce(rows[RANK].copy(), recv, getattr(MPI, KNOWN[op].mpi), algorithm=algorithm)
    np.testing.assert_array_equal(recv, expected)


@pytest.mark.parametrize("algorithm", ["auto", "ring", "slices"])
def test_bfloat16_is_joined_in_float32(comm, algorithm):
    bfloat16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    rows = np.random.default_rng(5).integers(-50, 50, (SIZE, 33)).astype(bfloat16)
    send = rows[RANK].copy()
    comm.allreduce(send, op="mean", algorithm=algorithm)
    np.testing.assert_array_equal(send, (rows.astype("f4").sum(0) / np.float32(SIZE)).astype(bfloat16))
    comm.bcast(send, SIZE - 1)


class Held:
    """An object whose memory is known by `__array_interface__` alone."""

    def __init__(self, values):
        self.values = np.array(values, np.float32)
        self.__array_interface__ = self.values.__array_interface__


class ByDlpack:
    """An object whose memory is known by DLPack alone."""

    def __init__(self, values):
        self.values = np.array(values, np.float32)
        self.__dlpack__, self.__dlpack_device__ = self.values.__dlpack__, self.values.__dlpack_device__


@pytest.mark.parametrize(
    "kind", [Held, ByDlpack, lambda v: array.array("f", v), lambda v: memoryview(np.array(v, "f4"))]
)
def test_objects_with_memory_are_used_where_it_lies(comm, kind):
    for _ in range(2):
        given = kind([1.0, 2.0, RANK])
        comm.allreduce(given)
        found = given.values if hasattr(given, "values") else np.asarray(given)
        np.testing.assert_array_equal(found, [SIZE, 2 * SIZE, sum(range(SIZE))])


def test_a_tensor_of_pytorch_is_used_where_it_lies(comm):
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        tensor = torch.arange(4).to(dtype)
        comm.allreduce(tensor)
        assert tensor.tolist() == [0, SIZE, 2 * SIZE, 3 * SIZE]


def test_objects_travel_and_one_that_cannot_is_an_error_on_all(comm):
    over = comm.objects
    assert over.bcast({"from": RANK}, SIZE - 1) == {"from": SIZE - 1}
    assert over.gather(RANK) == (list(range(SIZE)) if RANK == 0 else None)
    assert over.allgather((RANK, "a")) == [(rank, "a") for rank in range(SIZE)]
    assert over.scatter([rank**2 for rank in range(SIZE)] if RANK == 0 else None) == RANK**2
    assert over.alltoall([(RANK, rank) for rank in range(SIZE)]) == [(rank, RANK) for rank in range(SIZE)]
    with pytest.raises(ArgumentError, match="pickle"):
        over.allgather((lambda: 0) if RANK == SIZE - 1 else 0)
    with pytest.raises(ArgumentError, match=f"takes a list of {SIZE} objects, got {SIZE + 1}"):
        over.scatter([0] * (SIZE + 1), 0) if RANK == 0 else over.scatter(None, 0)
    assert over.allgather(1) == [1] * SIZE


def test_a_communicator_is_a_context(comm):
    with Communicator(COMM) as one:
        one.barrier()
    assert not one.comm


def test_the_fifth_request_of_a_kind_and_blocking_calls_between(comm):
    arrays = [np.full(100, float(i + RANK)) for i in range(5)]
    requests = [comm.iallreduce(one, algorithm="ring") for one in arrays]
    comm.barrier()
    assert all(one.is_complete for one in requests)
    waitall(requests)
    for i, one in enumerate(arrays):
        assert (one == SIZE * i + sum(range(SIZE))).all()
