"""Open MPI 5.0's mpirun exits with 0, and prints nothing, where it tolerates faults and all processes are killed.

    timeout 60 jobs/mpirun.sh --ft -n 2 python jobs/lab/mpi_all_lost.py; echo $?

Expected: the exit code of a killed process, 137, as without --ft. Found: 0.
"""

import os
import signal

from mpi4py import MPI

MPI.COMM_WORLD.Barrier()
os.kill(os.getpid(), signal.SIGKILL)
