"""A message of more than 2 GiB, more bytes than a C int counts. Takes 9 GiB: only with SCAFFE_LARGE=1."""

from __future__ import annotations

import os
import sys

import pytest

PROGRAM = """
import sys
import numpy as np
from mpi4py import MPI
from collectives import Communicator

comm = Communicator(MPI.COMM_WORLD)
n = (1 << 29) + 1234567
array = np.full(n, comm.rank + 1, np.float32)
array[-1] += 5
if sys.argv[1] == "bcast":
    comm.bcast(array, 1, algorithm=sys.argv[2])
    assert (array[:-1] == 2).all() and array[-1] == 7
else:
    comm.reduce(array, algorithm=sys.argv[2], chunk_bytes=int(sys.argv[3]))
    if comm.rank == 0:
        assert (array[:-1] == 3).all() and array[-1] == 13
print("right", flush=True)
comm.free()
"""

pytestmark = [
    pytest.mark.mpi_skip,
    pytest.mark.watchdog(400),
    pytest.mark.skipif(not os.environ.get("SCAFFE_LARGE"), reason="takes 9 GiB; SCAFFE_LARGE=1 runs it"),
]


@pytest.mark.parametrize(
    ("what", "algorithm", "chunk_bytes"),
    [
        ("reduce", "slices", 0),
        ("reduce", "mpi", 0),
        ("reduce", "chain", 0),
        ("reduce", "chain", 1 << 31),  # a chunk in one message, and one of scratch
        ("bcast", "chain", 0),
        ("bcast", "slices", 0),
    ],
)
def test_more_than_2_gib_in_one_call(mpirun, tmp_path, what, algorithm, chunk_bytes):
    program = tmp_path / "large.py"
    program.write_text(PROGRAM)
    result = mpirun(2, sys.executable, "-m", "mpi4py", program, what, algorithm, chunk_bytes, timeout=180)
    assert result.stdout.count("right") == 2, result.stderr
