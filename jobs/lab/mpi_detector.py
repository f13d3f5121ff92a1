"""When Open MPI's failure detector reports a rank whose node is cut off, and when one that lives: without scaffe.

    jobs/lab/netlab.sh up 3
    NETLAB_MPIRUN="jobs/mpirun.sh --ft" jobs/lab/netlab.sh run openmpi 2 python jobs/lab/mpi_detector.py 1000 cut

The last rank cuts its node's link. With a timeout of T seconds and K ranks on the node, shrink returns after
T + 2 T (K - 1): each rank watches the next, and begins to watch the one behind it once that is reported.

    jobs/lab/netlab.sh up 3 400mbit
    export OMPI_MCA_mpi_ft_detector_period=0.25 OMPI_MCA_mpi_ft_detector_timeout=1.5
    NETLAB_MPIRUN="jobs/mpirun.sh --ft" jobs/lab/netlab.sh run openmpi 1 python jobs/lab/mpi_detector.py 16000000

Nothing is cut, and a rank is reported: its heartbeat waits behind a message that takes 2.6 s.
"""

import os
import socket
import subprocess
import sys
import time

import numpy as np
from mpi4py import MPI

comm, values = MPI.COMM_WORLD.Dup(), np.ones(int(sys.argv[1]))
comm.Barrier()
start, is_cut = time.monotonic(), len(sys.argv) < 3 or comm.rank < comm.size - 1
try:
    while comm.allreduce(time.monotonic() < start + 10, MPI.LAND):
        if not is_cut and time.monotonic() > start + 2:
            is_cut, port = True, socket.gethostname().replace("nl", "port")
            subprocess.run(["ip", "-n", "nlswitch", "link", "set", port, "down"])
        comm.Allreduce(MPI.IN_PLACE, values)
        values[:] = 1
    print(f"rank {comm.rank}: no rank is reported", flush=True)
except MPI.Exception:
    comm.Revoke()
    print(f"rank {comm.rank}: {comm.Shrink().size} ranks are left after {time.monotonic() - start:.1f} s", flush=True)
os._exit(0)
