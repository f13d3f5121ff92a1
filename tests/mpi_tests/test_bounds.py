"""Bounds of a collective's time, by what must be moved."""

import pytest
from mpi4py import MPI

from collectives import Communicator
from collectives.bench.bounds import Bounds
from collectives.group import Group

pytestmark = pytest.mark.mpi
WORLD = MPI.COMM_WORLD


@pytest.mark.parametrize("nodes", [1, WORLD.size])
def test_bounds_count_what_must_be_moved(nodes):
    comm = Communicator(WORLD, group=Group.uniform(WORLD.size) if nodes > 1 else None)
    bounds, ranks = Bounds(comm), WORLD.size
    bounds.bandwidth = lambda touched: 2.0
    bounds._beta = 0.5
    found = [bounds.seconds(what, 100) for what in ("reduce", "bcast", "allreduce")]
    factors = (ranks + 1, ranks, 2 * ranks) if nodes == 1 else (1, 1, 2 * (nodes - 1) / nodes)
    assert found == [50 * factor for factor in factors]
    comm.free()


def test_links_between_nodes_are_measured_by_all_of_their_ranks():
    group = Group.uniform(WORLD.size)
    comm = Communicator(WORLD, group=group)
    assert 0 < Bounds(comm).beta() < 1e-6
    comm.free()
