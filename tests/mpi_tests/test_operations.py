"""Operations of every type that has them, by the library and by plans of ours, against plain numpy."""

import numpy as np
import pytest
from mpi4py import MPI

from collectives import ArgumentError
from collectives.execution.operations import KNOWN

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]
COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size


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
