"""MPI_Finalize after a loss, by the ranks that are left; over TCP between nodes it was seen to hang (Open MPI 5.0).

    timeout 60 jobs/mpirun.sh --ft -n 4 python jobs/lab/mpi_finalize.py; echo $?

Expected: exit code 0. scaffe's ranks leave by a barrier and os._exit, not by MPI_Finalize.
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
