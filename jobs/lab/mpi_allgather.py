"""An allgather that a lost rank breaks off may return without an error, its buffer half filled (Open MPI 5.0).

    for k in $(seq 20); do timeout 60 jobs/mpirun.sh --ft -n 4 python jobs/lab/mpi_allgather.py; done | grep -v OK

Expected: each rank that is left gets all ranks' objects, or an error of MPI. Found, in most runs: torn pickles.
"""

import os
import random
import signal
import threading
from pickle import UnpicklingError

from mpi4py import MPI

comm, found = MPI.COMM_WORLD.Dup(), "OK"
if comm.rank in (0, comm.size - 1):
    threading.Timer(0.1 + 0.1 * random.random(), os.kill, (os.getpid(), signal.SIGKILL)).start()
try:
    for k in range(10**9):
        comm.allgather((k, "x" * ((37 * k + 11 * comm.rank) % 300)))
except UnpicklingError as error:
    found = f"{error}"
except MPI.Exception:
    pass
print(f"rank {comm.rank}: {found}", flush=True)
comm.Revoke()
comm.Shrink()
os._exit(0)
