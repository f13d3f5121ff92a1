"""Python objects over the ranks."""

import pytest
from mpi4py import MPI

from collectives import ArgumentError

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size


def test_objects_travel_and_one_that_cannot_is_an_error_on_all(comm):
    over = comm.objects
    assert over.bcast({"from": RANK}, SIZE - 1) == {"from": SIZE - 1}
    assert over.gather(RANK) == (list(range(SIZE)) if RANK == 0 else None)
    assert over.allgather((RANK, "a")) == [(rank, "a") for rank in range(SIZE)]
    assert over.scatter([rank**2 for rank in range(SIZE)] if RANK == 0 else None) == RANK**2
    assert over.alltoall([(RANK, rank) for rank in range(SIZE)]) == [(rank, RANK) for rank in range(SIZE)]
    with pytest.raises(ArgumentError, match="pickle|local object"):
        over.allgather((lambda: 0) if RANK == SIZE - 1 else 0)
    with pytest.raises(ArgumentError, match=f"takes a list of {SIZE} objects, got {SIZE + 1}"):
        over.scatter([0] * (SIZE + 1), 0) if RANK == 0 else over.scatter(None, 0)
    assert over.allgather(1) == [1] * SIZE
