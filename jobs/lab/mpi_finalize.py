"""MPI_Finalize of the ranks that are left after a loss does not return (Open MPI 5.0).

    timeout 60 jobs/mpirun.sh --ft -n 4 python jobs/lab/mpi_finalize.py; echo $?

Expected: exit code 0. Found: all ranks that are left wait in MPI_Finalize; 124.
"""

import os
import signal

from mpi4py import MPI

comm = MPI.COMM_WORLD.Dup()
for _ in range(20):
    comm.Barrier()
if comm.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        comm.Barrier()
except MPI.Exception as error:
    print(f"rank {comm.rank}: {error}", flush=True)
comm.Revoke()
comm.Shrink().Barrier()
print(f"rank {comm.rank} finalizes", flush=True)
MPI.Finalize()
