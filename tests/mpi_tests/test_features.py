"""Features extracted by several ranks are those that one extracts."""

import nets
import numpy as np
import pytest
from mpi4py import MPI

import scaffe
from scaffe.compute import Compute
from scaffe.context import Context
from scaffe.parallel.evaluate import batch_numbers
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.team import Team
from scaffe.parallel.world import World
from scaffe.tools.features import extract

COMM = MPI.COMM_WORLD
pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets.shared_folder(COMM, tmp_path_factory, "features", count=20)


def features(folder, comm, iterations):
    """Return the features that the ranks of `comm` extract with the same weights; on ranks above its root nothing."""
    world = World(comm)
    net = folder / "net.prototxt"
    if world.is_root:
        net.write_text(nets.lenet(folder / "db", 8))
    comm.Barrier()
    numbers = batch_numbers(world.rank, world.size, iterations)
    context = Context(scaffe.TEST, seed=3, compute=Compute("reference"), batch_numbers=numbers)
    built = scaffe.Net(net, context=context)
    path = folder / f"{comm.size}_{iterations}.npy"
    counts = extract([built], {"ip1": str(path)}, iterations, world, Team(world, Instances()), "npy")
    built.close()
    assert counts == {"ip1": 8 * iterations if world.is_root else 0}
    return np.load(path) if world.is_root else None


@pytest.mark.parametrize("iterations", [1, 4, 5])
def test_features_do_not_depend_on_the_number_of_ranks(folder, iterations):
    found = features(folder, COMM.Dup(), iterations)
    alone = COMM.Split(0 if COMM.rank == 0 else MPI.UNDEFINED)
    if alone != MPI.COMM_NULL:
        np.testing.assert_array_equal(found, features(folder, alone, iterations))
