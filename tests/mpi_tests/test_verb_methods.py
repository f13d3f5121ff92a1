"""Verbs of the MPI library, of any type, lengths and in place, against plain numpy."""

import numpy as np
import pytest
from mpi4py import MPI

from collectives import Communicator, waitall

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
EACH = 5


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
