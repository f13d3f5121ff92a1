"""A communicator of one rank: what its dups share with it."""

import numpy as np
from mpi4py import MPI

from collectives import Communicator


def test_a_dup_passes_through_host_memory_too_and_is_given_up_with_its_communicator() -> None:
    comm = Communicator(MPI.COMM_SELF, through_host=True)
    dup = comm.dup()
    dup.allreduce(np.ones(3, np.float32))
    assert dup._plans and dup._maker.through_host
    comm.abandon()
    assert not dup._plans
