"""Messages to a lost rank keep their buffers for ever, of which a process has 512 for its node (Open MPI 5.0).

    for k in 64 2000; do timeout 20 jobs/mpirun.sh --ft -n 3 python jobs/lab/mpi_buffers.py $k; done

Expected: the ranks that are left exchange objects after Shrink. Found: after 2000 messages of 64 bytes each waits for
ever to send more than a few hundred bytes.
"""

import os
import signal
import sys
import time
from contextlib import suppress

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD.Dup()
if comm.rank == 0:
    comm.Barrier()
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
message = np.zeros(64, np.uint8)
comm.Barrier()
sent = [comm.Isend(message, 0) for _ in range(int(sys.argv[1]))]
try:
    comm.recv(source=0)
except MPI.Exception:
    comm.Revoke()
for one in sent:
    with suppress(MPI.Exception):
        one.Wait()
left = comm.Shrink()
for length in (10, 1000, 10_000):
    left.allgather("x" * length)
    print(f"rank {comm.rank}: objects of {length} bytes", flush=True)
os._exit(0)
