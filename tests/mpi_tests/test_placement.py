from __future__ import annotations

import pytest
from mpi4py import MPI

from collectives.group import Group

pytestmark = pytest.mark.mpi


def test_ranks_that_can_share_memory_stand_on_one_node() -> None:
    comm = MPI.COMM_WORLD
    group = Group.from_comm(comm)
    with_me = comm.Split_type(MPI.COMM_TYPE_SHARED)
    assert group.size == comm.size and group.nodes.count(group.nodes[comm.rank]) == with_me.size
    assert group.order(comm.size - 1)[0] == comm.size - 1 and set(group.supernodes) == {0}
    with_me.Free()
