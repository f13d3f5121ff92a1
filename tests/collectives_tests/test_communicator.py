"""A communicator of one rank: what its dups share with it, and what other ranks' answers change."""

from types import SimpleNamespace

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


def test_a_node_without_room_for_windows_counts_for_all_ranks() -> None:
    comm = Communicator(MPI.COMM_SELF)
    assert comm.has_room(0)

    def with_another(place: object, found: np.ndarray, op: MPI.Op) -> SimpleNamespace:
        found[1] = 1  # what the other rank says, that it has none
        return SimpleNamespace(Wait=lambda: None)

    comm.comm = SimpleNamespace(size=2, Iallreduce=with_another)  # type: ignore[assignment]
    assert not comm.has_room(0)
