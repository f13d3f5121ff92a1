"""A rank that is killed in the midst of a collective: an error for the others, as soon as MPI notices, and no hang."""

from __future__ import annotations

import sys

import pytest

PROGRAM = """
import os, signal, sys
import numpy as np
from mpi4py import MPI
from collectives import Communicator

comm = Communicator(MPI.COMM_WORLD)
plan = comm.plan("allreduce", np.ones(1 << 20, np.float32), algorithm=sys.argv[1])
plan.run()
if comm.rank == 1:  # before it starts: in that call the last rank to come can do its whole share
    os.kill(os.getpid(), signal.SIGKILL)
try:
    plan.start()
    plan.finish()
except MPI.Exception as error:
    print(f"rank {comm.rank}: {MPI.Get_error_string(error.Get_error_class())}", flush=True)
    os._exit(0)
print(f"rank {comm.rank}: finished", flush=True)
os._exit(0)
"""

pytestmark = pytest.mark.mpi_skip


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "dies.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.parametrize("algorithm", ["ring", "slices"])
def test_the_job_ends_with_an_error(mpirun, program, algorithm):
    result = mpirun(3, sys.executable, "-m", "mpi4py", program, algorithm, timeout=30)
    assert result.returncode != 0
    assert "finished" not in result.stdout


def test_survivors_get_an_exception_where_mpi_tolerates_faults(mpirun, program):
    if "Open MPI" not in mpirun(1, "--version").stdout:
        pytest.skip("only Open MPI goes on without a rank")
    result = mpirun(3, "--with-ft", "ulfm", sys.executable, "-m", "mpi4py", program, "ring", timeout=30)
    told = sorted(result.stdout.splitlines())
    assert [line[:7] for line in told] == ["rank 0:", "rank 2:"], result.stderr
    assert all("MPI_ERR_PROC_FAILED" in line for line in told)
