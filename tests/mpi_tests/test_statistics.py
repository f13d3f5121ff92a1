"""BatchNorm's statistics over ranks: the same bits on all, each rank's rows in their proportion, Caffe's snapshots."""

import nets
import numpy as np
import pytest
from google.protobuf import text_format
from mpi4py import MPI

from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.proto import SolverParameter
from scaffe.proto.files import read_solver_state
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
SIZES = [size for size in (1, 2, 3, 4) if size <= COMM.size]
BATCH = 7  # no multiple of the ranks: some have more rows
pytestmark = pytest.mark.mpi

NET = """
layer {{ name: "data" type: "Data" top: "data" top: "label" transform_param {{ scale: 0.0078125 }}
  data_param {{ source: "{source}" batch_size: {batch} backend: LMDB }} }}
layer {{ name: "bn" type: "BatchNorm" bottom: "data" top: "bn" batch_norm_param {{ moving_average_fraction: 0.75 }} }}
layer {{ name: "scale" type: "Scale" bottom: "bn" top: "scale" scale_param {{ bias_term: true }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "scale" top: "ip"
  inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all ranks, with an LMDB of 50 images of 3 channels."""
    return nets.shared_folder(COMM, tmp_path_factory, "statistics", shape=(3, 6, 6))


def solver_on(folder, size, **options):
    """Return a solver on `size` ranks, None on the others."""
    comm = COMM.Split(0 if COMM.rank < size else MPI.UNDEFINED)
    if comm == MPI.COMM_NULL:
        return None
    param = SolverParameter(base_lr=0.01, lr_policy="fixed", momentum=0.9, weight_decay=0.01, random_seed=3)
    text_format.Parse(NET.format(source=folder / "db", batch=BATCH), param.net_param)
    param.snapshot_prefix, param.snapshot_after_train = str(folder / f"snap{size}"), False
    return Solver(param, world=World(comm), **options)


def statistics(solver):
    return [blob.data.copy() for blob in solver.net.params["bn"]]


@pytest.mark.parametrize("scaling", ["strong", "weak"])
@pytest.mark.parametrize("size", SIZES)
def test_all_ranks_have_the_same_bits_after_each_iteration(folder, size, scaling):
    solver = solver_on(folder, size, run=Run(scaling=scaling))
    if solver is None:
        return
    for _ in range(3):
        solver.step(1)
        bits = solver.world.comm.allgather(b"".join(blob.tobytes() for blob in statistics(solver)))
        assert len(set(bits)) == 1
    solver.close()


@pytest.mark.parametrize("size", SIZES)
def test_they_are_averages_of_what_the_ranks_measure_by_their_rows(folder, size):
    solver = solver_on(folder, size)
    if solver is None:
        return
    solver.step(1)
    x = solver.net.blobs["data"].data.astype(np.float64)
    share = len(x) / BATCH
    comm = solver.world.comm
    means = comm.allreduce(share * x.mean(axis=(0, 2, 3)))
    variances = comm.allreduce(share * np.moveaxis(x, 1, 0).reshape(3, -1).var(axis=1, ddof=1))
    for ours, expected in zip(statistics(solver), (means, variances, [1.0]), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5)
    solver.close()


def test_the_means_on_any_number_of_ranks_are_one_ranks(folder):
    solvers = [solver_on(folder, size) for size in SIZES]
    results = []
    for solver in filter(None, solvers):
        solver.step(4)
        results.append((statistics(solver)[0], statistics(solver)[2]))
        solver.close()
    for mean, weight in results[1:]:
        np.testing.assert_allclose(mean, results[0][0], rtol=1e-5)
        np.testing.assert_array_equal(weight, results[0][1])


@pytest.mark.parametrize("size", SIZES)
def test_they_take_no_part_in_updates_and_snapshots_have_them_where_caffe_does(folder, size):
    solver = solver_on(folder, size)
    if solver is None:
        return
    solver.step(2)
    path = solver.snapshot()
    before = statistics(solver)
    shapes = [tuple(blob.shape.dim) for blob in read_solver_state(path).history]
    assert shapes == [(3,), (3,), (1,), (3,), (3,), (10, 108), (10,)]
    assert not any(any(blob.data) for blob in read_solver_state(path).history[:3])
    solver.step(1)
    after = statistics(solver)
    solver.restore(path)
    solver.parts.propagate.sync()
    for ours, expected in zip(statistics(solver), before, strict=True):
        np.testing.assert_array_equal(ours, expected)
    solver.step(1)
    for ours, expected in zip(statistics(solver), after, strict=True):
        np.testing.assert_array_equal(ours, expected)
    solver.close()
