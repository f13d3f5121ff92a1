"""A mistake of one rank which the others can't be told of ends the job with one line."""

import sys

import pytest

pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own

SCRIPT = """
import mpi4py
mpi4py.rc.thread_level = {level!r}
import numpy as np
from collectives import Communicator, agreement
from mpi4py import MPI

agreement.ASK, agreement.PATIENCE = 0.0, {patience}
comm = Communicator(MPI.COMM_WORLD)
good = np.ones(6, np.float32)
known = lambda **how: comm.{call}(**{{{array!r}: good}} | how)
other = lambda: comm.allreduce(good)
for _ in range(2):
    known()
    other()
request = known(**({wrong} if comm.rank == 1 else {{}}))
{then}
print("went on")
"""
NONE_OF_OURS = (
    "unknown operation of MPI, which has none of ours; "
    "known operations: sum max min mean prod land lor lxor band bor bxor"
)
NEW, KNOWN = "comm.allreduce(np.ones(7, np.float32))", "other()"
SEVERAL = "second = comm.iallreduce(good.copy()); request.wait()"


@pytest.mark.parametrize(
    ("call", "level", "then", "wrong", "said"),
    [
        ("allreduce", "serialized", "", "{'send': 5}", "send must be a numpy array, got int"),
        ("bcast", "multiple", NEW, "{'root': '0'}", "root must be a whole number, got '0'"),
        ("bcast", "multiple", KNOWN, "{'array': [1] * 6}", "send must be a numpy array, got list"),
        (
            "iallreduce",
            "multiple",
            "second = comm.iallreduce(good.copy()); request.wait()",
            "{'op': MPI.NO_OP}",
            NONE_OF_OURS,
        ),
    ],
    ids=["no threads", "others agree on a new call", "others are in a later call", "others wait for several requests"],
)
def test_the_job_ends_with_what_is_wrong(mpirun, call, level, then, wrong, said):
    """After a broadcast its root goes on; of several requests a rank is in the last one alone."""
    array, patience = "array" if call == "bcast" else "send", 60 if call == "bcast" else 0.1
    script = SCRIPT.format(call=call, level=level, then=then, wrong=wrong, array=array, patience=patience)
    run = mpirun(2, sys.executable, "-c", script)  # plain Python, which would wait for ever after an error of one rank
    line = f"rank 1: {call.removeprefix('i')}: {said}; other ranks are in the same collective already, so the job ends"
    assert run.returncode == 2 and run.stderr.count(f"collectives: {line}") == 1
    assert "Traceback" not in run.stderr and "went on" not in run.stdout
