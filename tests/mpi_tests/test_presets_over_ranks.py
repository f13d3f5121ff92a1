"""Presets over ranks: each trains what one rank trains."""

import nets
import numpy as np
import pytest
from mpi4py import MPI

import scaffe
from scaffe.parallel.world import World
from scaffe.training.presets import PRESETS

pytestmark = pytest.mark.mpi(min_size=2)
COMM = MPI.COMM_WORLD


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets.shared_folder(COMM, tmp_path_factory, "presets")


def trained(folder, comm, **given):
    """Return the parameters after a few iterations."""
    param = nets.solver_with(nets.tower(folder / "db"), base_lr=0.1)
    solver = scaffe.get_solver(param, world=World(comm), **given)
    solver.step(4)
    solver.close()
    return [parameter.blob.data.copy() for parameter in solver.net.parameters]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_trains_what_one_rank_trains(folder, name):
    ours = trained(folder, COMM, preset=name)
    alone = COMM.bcast(trained(folder, MPI.COMM_SELF) if COMM.rank == 0 else None)
    for mine, expected in zip(ours, alone, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
