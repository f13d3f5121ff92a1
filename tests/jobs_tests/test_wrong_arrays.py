"""A mistake of one rank, where the others know the plan and ask nobody, ends the job with one line."""

import sys

import pytest

pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own

SCRIPT = """
import numpy as np
from collectives import Communicator, agreement
from mpi4py import MPI

agreement.PATIENCE = {patience}
comm = Communicator(MPI.COMM_WORLD)
good, strided = np.ones(6, np.float32), np.ones((6, 2), np.float32)[:, 0]
known = lambda **how: comm.{verb}(**{{{array!r}: good, "algorithm": {algorithm!r}}} | how)
known()
known()
known(**({wrong} if comm.rank == 1 else {{}}))
{then}
print("went on")
"""
NONE_OF_OURS = (
    "unknown operation of MPI, which has none of ours; "
    "known operations: sum max min mean prod land lor lxor band bor bxor"
)
LATER = "comm.allreduce(np.ones(7, np.float32))  # a new call, to which a broadcast lets its root go on"


@pytest.mark.parametrize(
    ("verb", "algorithm", "wrong", "said"),
    [
        ("allreduce", "auto", "{'send': strided}", "send must be contiguous, got shape (6,) with strides (8,)"),
        ("allreduce", "ring", "{'send': [1] * 6}", "send must be a numpy array, got list"),
        ("allreduce", "mpi", "{'op': MPI.NO_OP}", NONE_OF_OURS),
        ("bcast", "mpi", "{'root': '0'}", "root must be a whole number, got '0'"),
    ],
)
def test_the_job_ends_with_what_is_wrong(mpirun, verb, algorithm, wrong, said):
    bcast = verb == "bcast"
    how = {"array": "array", "patience": 60, "then": LATER} if bcast else {"array": "send", "patience": 0.1, "then": ""}
    script = SCRIPT.format(verb=verb, algorithm=algorithm, wrong=wrong, **how)
    run = mpirun(2, sys.executable, "-c", script)  # plain Python, which would wait for ever after an error of one rank
    line = f"collectives: rank 1: {verb}: {said}; other ranks are in the same collective already, so the job ends"
    assert run.returncode == 2 and run.stderr.count(line) == 1
    assert "Traceback" not in run.stderr and "went on" not in run.stdout
