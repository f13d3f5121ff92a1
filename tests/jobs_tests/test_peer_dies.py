"""A rank that is killed in the midst of a collective: an error for the others, as soon as MPI notices, and no hang."""

from __future__ import annotations

import sys

import pytest

PROGRAM = """
import os, signal, sys
import numpy as np
from mpi4py import MPI
from collectives import Communicator, RankLostError

comm = Communicator(MPI.COMM_WORLD)
plan = comm.plan("allreduce", np.ones(1 << 20, np.float32), algorithm=sys.argv[1])
plan.run()
if comm.rank == 1:  # before it starts: in that call the last rank to come can do its whole share
    os.kill(os.getpid(), signal.SIGKILL)
try:
    plan.start()
    plan.finish()
except RankLostError as error:
    print(f"rank {comm.rank}: {error}", flush=True)
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


def test_survivors_get_an_exception_where_mpi_tolerates_faults(tolerant_mpirun, program):
    result = tolerant_mpirun(3, "--with-ft", "ulfm", sys.executable, "-m", "mpi4py", program, "ring", timeout=30)
    told = sorted(result.stdout.splitlines())
    assert [line[:7] for line in told] == ["rank 0:", "rank 2:"], result.stderr
    assert all("a rank was lost: MPI_ERR_PROC_FAILED" in line for line in told)


GOES_ON = """
import contextlib, os, signal, sys
import numpy as np
from mpi4py import MPI
from collectives import Communicator, RankLostError, Staged

algorithm, staged, *lost = sys.argv[1:]
lost = [int(rank) for rank in lost]
world = MPI.COMM_WORLD.Dup()
comm = Communicator(world)
empty = comm.empty if algorithm == "slices" else np.ones
arrays = [empty(1 << 18, "f4") for _ in range(4)]
stages = Staged(comm, "allreduce", arrays, algorithm=algorithm)
try:
    for call in range(20):
        if call == 10 and world.rank in lost:
            os.kill(os.getpid(), signal.SIGKILL)
        if staged == "staged":
            stages.start(ready=True)
            stages.wait()
        else:
            comm.allreduce(arrays[0], algorithm=algorithm)
            comm.bcast(arrays[1], root=comm.size - 1)
    raise SystemExit(f"rank {world.rank} has not noticed")
except RankLostError:
    if world.rank in lost:  # another one was faster
        os.kill(os.getpid(), signal.SIGKILL)
    comm.revoke()
rest = world.Shrink()
comm.abandon()
comm = Communicator(rest)
mine = np.arange(1000, dtype="f4") + world.rank
total = mine.copy()
comm.allreduce(total, algorithm=algorithm)
expected = sum(np.arange(1000, dtype="f4") + rank for rank in range(world.size) if rank not in lost)
np.testing.assert_array_equal(total, expected)
stages = Staged(comm, "reduce", [mine])
stages.start(ready=True)
stages.wait()
assert rest.rank or np.array_equal(mine, expected)
print(f"rank {world.rank} goes on as {rest.rank} of {rest.size}", flush=True)
with contextlib.suppress(MPI.Exception):  # the first to leave it ends, and is lost to those that are still in it
    rest.Barrier()
os._exit(0)
"""


@pytest.mark.parametrize(
    ("algorithm", "how", "size", "lost"),
    [
        ("two-tree", "staged", 3, [0]),
        ("halving", "staged", 4, [1, 2]),
        ("slices", "blocking", 4, [0, 3]),
        ("mpi", "staged", 4, [3]),
    ],
)
def test_survivors_go_on_over_a_shrunk_communicator(tolerant_mpirun, tmp_path, algorithm, how, size, lost):
    path = tmp_path / "goes_on.py"
    path.write_text(GOES_ON)
    command = "--with-ft", "ulfm", sys.executable, "-m", "mpi4py", path, algorithm, how, *lost
    result = tolerant_mpirun(size, *command, timeout=30)
    left = [rank for rank in range(size) if rank not in lost]
    lines = {f"rank {rank} goes on as {new} of {len(left)}" for new, rank in enumerate(left)}
    assert set(result.stdout.splitlines()) == lines, result.stderr
