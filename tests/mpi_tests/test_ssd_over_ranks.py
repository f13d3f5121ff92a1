"""A small SSD over made pictures with boxes: ranks train as one does, and their tests print the same mAP."""

import numpy as np
import pytest
from boxed_pictures import make, solver, ssd
from google.protobuf import text_format
from mpi4py import MPI

from readers import Reading
from scaffe.compute import Compute
from scaffe.parallel.world import World
from scaffe.proto import NetParameter, SolverParameter
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
pytestmark = pytest.mark.mpi
SAMPLER = "batch_sampler { sampler { min_scale: 0.7 } max_sample: 1 max_trials: 20 }"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = COMM.bcast(tmp_path_factory.mktemp("boxes") if COMM.rank == 0 else None)
    if COMM.rank == 0:
        make(folder, 12, 0, "train.txt")
        make(folder, 16, 1, "test.txt")
    COMM.Barrier()
    return folder


def trained(folder, comm, iterations, readers="parallel"):
    """Return the parameters and the tests' outputs after some iterations on the ranks of `comm`."""
    param = text_format.Parse(solver("", iterations), SolverParameter())
    param.ClearField("net")
    param.display, param.snapshot_after_train = 0, False
    param.net_param.CopyFrom(
        text_format.Parse(ssd(folder / "train.txt", folder / "test.txt", 6, SAMPLER), NetParameter())
    )
    one = Solver(param, world=World(comm), compute=Compute("reference"), reading=Reading(readers=readers))
    seen = []
    one.monitor.tested = lambda iteration, number, outputs: seen.append(outputs)
    one.step(iterations)
    one.test_all()
    one.parts.propagate.sync()
    values = {name: [blob.data.copy() for blob in blobs] for name, blobs in one.net.params.items()}
    one.close()
    return values, seen


@pytest.mark.parametrize("readers", ["parallel", "single"])
def test_ranks_train_as_one_and_print_the_same_precision(folder, readers):
    """The root alone trains again, as one rank. A single reader numbers the pictures of all ranks' batches."""
    together, scores = trained(folder, COMM, 4, readers)
    alone = COMM.Split(0 if COMM.rank == 0 else MPI.UNDEFINED)
    if COMM.rank == 0:
        expected, one = trained(folder, alone, 4)
        alone.Free()
        for name, blobs in expected.items():
            for blob, other in zip(blobs, together[name], strict=True):
                np.testing.assert_allclose(other, blob, rtol=0, atol=2e-5 * max(1e-3, np.abs(blob).max()), err_msg=name)
        assert [*scores[-1]] == ["eval"] and scores[-1]["eval"].shape == (1,)
        np.testing.assert_allclose(scores[-1]["eval"], one[-1]["eval"], rtol=0, atol=1e-3)
    COMM.Barrier()
