"""What Open MPI's mpirun does when the link of a node is cut under ULFM: a program without scaffe.

    NETLAB_MPIRUN="jobs/mpirun.sh --ft" jobs/lab/netlab.sh run openmpi 1 python -m mpi4py jobs/lab/without_a_node.py
    ip -n nlswitch link set port1 down    # some seconds after the start, in another shell

The ranks that are left shrink and end with exit code 0. mpirun hangs then: it waits for the daemon of the lost node.
With PRTE_MCA_oob_tcp_keepalive_time=1 it notices the loss, ends all ranks ("We cannot recover from this failure") and
exits with 0.
"""

from __future__ import annotations

import os
import time

import numpy as np
from mpi4py import MPI


def main() -> None:
    """Sum for 20 seconds, without the ranks that are lost."""
    comm, one, result = MPI.COMM_WORLD.Dup(), np.ones(1), np.zeros(1)
    end = time.monotonic() + 20
    while True:
        try:
            comm.Allreduce(one, result)
            if comm.allreduce(time.monotonic() > end, MPI.LOR):
                break
        except MPI.Exception:
            comm.Revoke()
            comm = comm.Shrink()
            print(f"rank {MPI.COMM_WORLD.rank}: {comm.size} ranks are left", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
