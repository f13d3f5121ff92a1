"""A broadcast reports a lost rank as MPI_ERR_OTHER, not as MPI_ERR_PROC_FAILED, on some ranks (Open MPI 5.0).

    jobs/mpirun.sh --ft -n 4 python jobs/lab/mpi_bcast.py

Expected: MPI_ERR_PROC_FAILED, or MPI_ERR_REVOKED, on each rank that is left. Found: MPI_ERR_OTHER on the root.
"""

import os
import signal

import numpy as np
from mpi4py import MPI

comm, values = MPI.COMM_WORLD.Dup(), np.zeros(1000)
for _ in range(20):
    comm.Barrier()
if comm.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        comm.Bcast(values, 0)
except MPI.Exception as error:
    print(f"rank {comm.rank}: {error}", flush=True)
comm.Revoke()
comm.Shrink().Barrier()
os._exit(0)
