"""MPI_Abort leaves other ranks running where Open MPI 5.0 tolerates faults, on 4 or more ranks.

    timeout 60 jobs/mpirun.sh --ft -n 4 python jobs/lab/mpi_abort.py; echo $?

Expected: exit code 5 at once, as on 3 ranks, or without --ft. Found: the others say that they still run; 124.
"""

import time

from mpi4py import MPI

comm = MPI.COMM_WORLD
for _ in range(20):
    comm.Barrier()
if comm.rank == 0:
    comm.Abort(5)
for seconds in range(5, 1000, 5):
    time.sleep(5)
    print(f"rank {comm.rank} runs {seconds} s after MPI_Abort", flush=True)
