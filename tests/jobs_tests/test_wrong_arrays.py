"""A mistake of one rank, where the others know the plan and ask nobody: between nodes it ends the job with one line."""

import sys

import pytest

pytestmark = pytest.mark.mpi_skip  # they start an mpirun of their own

SCRIPT = """
import numpy as np
from collectives import Communicator, Group, agreement
from mpi4py import MPI

agreement.PATIENCE = {patience}
comm = Communicator(MPI.COMM_WORLD, group=Group.uniform(2))
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


SETTLED = """
import numpy as np
from collectives import CollectiveError, Communicator, agreement
from mpi4py import MPI

agreement.PATIENCE = 1
first = Communicator(MPI.COMM_WORLD)
ones = lambda: np.ones(1000, np.float32)
{program}
"""
TWO_AT_ONCE = """
second = first.dup()
for comm in first, second:
    comm.iallreduce(ones(), algorithm="ring").wait()
MPI.COMM_WORLD.Barrier()
right, wrong = (second, first) if first.rank == 0 else (first, second)
request = right.iallreduce(ones(), algorithm="ring")
try:
    wrong.iallreduce([1] if first.rank < 2 else ones(), algorithm="ring").wait()
except CollectiveError:
    request.wait()
"""
DROPPED = """
for _ in range(2):
    first.allreduce(ones())
if first.rank == 0:
    first.forget()
first.allreduce(ones())
"""


@pytest.mark.parametrize(
    ("program", "ranks", "said"),
    [(TWO_AT_ONCE, 3, "two mistakes at the same time"), (DROPPED, 2, "rank 0: allreduce: a call that is new to this")],
)
def test_what_a_node_cannot_settle_ends_the_job_with_a_line(mpirun, program, ranks, said):
    """Ranks settle two mistakes in different orders; a rank has dropped the plans that others run."""
    run = mpirun(ranks, sys.executable, "-c", SETTLED.format(program=program))
    assert run.returncode == 2 and said in run.stderr
    assert "Traceback" not in run.stderr
