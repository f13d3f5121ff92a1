"""A process that ends with an exit code other than 0 is not reported as lost by Open MPI 5.0.

    timeout 60 jobs/mpirun.sh --ft -n 3 python jobs/lab/mpi_exit.py 1; echo $?

Expected: the others report the loss at once, as for the argument 0, and for kill, a SIGKILL. Found: they wait; 124.
With -n 2, half of the processes have ended so: mpirun ends the job, with exit code 1 and without a line.
Open MPI's own detector reports it (OMPI_MCA_mpi_ft_detector=1 OMPI_MCA_mpi_ft_detector_thread=1).
"""

import os
import signal
import sys

from mpi4py import MPI

comm = MPI.COMM_WORLD.Dup()
for _ in range(20):
    comm.Barrier()
if comm.rank == 1:
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(int(sys.argv[1]))
try:
    while True:
        comm.Barrier()
except MPI.Exception as error:
    print(f"rank {comm.rank}: {error}", flush=True)
comm.Revoke()
comm.Shrink().Barrier()
os._exit(0)
