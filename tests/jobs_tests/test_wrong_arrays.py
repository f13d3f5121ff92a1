"""An array that is wrong on one rank, where all ranks know the plan and ask nobody, ends the job with one line."""

import sys

import pytest

pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own

SCRIPT = """
import numpy as np
from mpi4py import MPI
from collectives import Communicator

comm = Communicator(MPI.COMM_WORLD)
good, strided = np.ones(6, np.float32), np.ones((6, 2), np.float32)[:, 0]
for array in (good, good, {wrong} if comm.rank == 1 else good):
    comm.allreduce(array, algorithm={algorithm!r})
print("went on")
"""


@pytest.mark.parametrize(
    ("wrong", "algorithm", "said"),
    [
        ("strided", "auto", "send must be contiguous, got shape (6,) with strides (8,)"),
        ("strided", "ring", "send must be contiguous, got shape (6,) with strides (8,)"),
        ("[1] * 6", "auto", "send must be a numpy array, got list"),
    ],
)
def test_the_job_ends_with_what_is_wrong(mpirun, wrong, algorithm, said):
    script = SCRIPT.format(wrong=wrong, algorithm=algorithm)
    run = mpirun(2, sys.executable, "-c", script)  # plain Python, which would wait for ever after an error of one rank
    line = f"collectives: rank 1: allreduce: {said}; other ranks are in the same collective already, so the job ends"
    assert run.returncode == 2 and line in run.stderr
    assert "Traceback" not in run.stderr and "went on" not in run.stdout
