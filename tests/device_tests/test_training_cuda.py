"""Training on a real GPU, which several ranks may share, compared with training by one rank on the CPU.

jobs/mpirun.sh -n 4 python -m mpi4py -m pytest --with-mpi -m mpi tests/device_tests
"""

import numpy as np
import pytest
from a_gpu_of_ours import GPU, MISSING
from mpi4py import MPI
from nets import lenet, shared_folder, solver_with

import scaffe
from scaffe.compute import Compute
from scaffe.monitor.watching import Watching
from scaffe.parallel.run import Run
from scaffe.parallel.world import World

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]
COMM = MPI.COMM_WORLD
RUNS = [Run("SC-OBR"), Run(), Run("SC-OB"), Run("SC-OBR", "allreduce"), Run("SC-OBR", reduce="nccl")]
RUNS = RUNS[:1] if MISSING else RUNS  # over stand-ins test_training_on_devices.py has the others


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return shared_folder(COMM, tmp_path_factory, "cuda", count=64)


def trained(folder, comm, chosen, run):
    """Return LeNet's parameters after a few iterations."""
    world = World(comm.Dup())
    world.take_gpu(chosen)
    param = solver_with(lenet(folder / "db", 16, dropout=True, smooth=True), snapshot_prefix=str(folder / "snap"))
    solver = scaffe.Solver(
        param,
        world=world,
        run=run,
        compute=Compute(engine="auto" if chosen else "reference"),
        watching=Watching(stall_seconds=0),
    )
    solver.step(5)
    solver.parts.propagate.sync()
    values = solver.net.packed.host_data().copy()
    solver.close()
    return values


@pytest.mark.parametrize(
    "run", RUNS[:1] if MISSING else RUNS, ids=lambda run: f"{run.workflow} {run.sync} {run.reduce}"
)
def test_ranks_on_gpus_equal_one_rank_on_the_processor(folder, run):
    alone = trained(folder, MPI.COMM_SELF, None, Run())
    np.testing.assert_allclose(trained(folder, COMM, GPU, run), alone, rtol=0, atol=2e-5 * np.abs(alone).max())
