"""The theorem: P ranks that divide the batch compute what one rank with the whole batch computes."""

from dataclasses import replace

import nets
import numpy as np
import pytest
from both_engines import needs_onednn
from mpi4py import MPI

from scaffe.compute import Compute
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
SIZES = [size for size in (1, 2, 3, 4) if size <= COMM.size]
pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all ranks, with an LMDB of 50 images: not a multiple of the batch."""
    return nets.shared_folder(COMM, tmp_path_factory, "ranks")


def train(folder, size, *, iterations=20, scaling="strong", engine="reference", net_options=None, run=None, **fields):
    """Return the parameters after training on `size` ranks, on those ranks; None on the others."""
    comm = COMM.Split(0 if COMM.rank < size else MPI.UNDEFINED)
    if comm == MPI.COMM_NULL:
        return None
    param = nets.solver_with(nets.lenet(folder / "db", **{"pool": "AVE", **(net_options or {})}), **fields)
    given = replace(run or Run(), scaling=scaling)
    solver = Solver(param, world=World(comm), run=given, compute=Compute(engine=engine))
    solver.step(iterations)
    solver.propagate.sync()
    solver.close()
    comm.Free()
    return {p.label: p.blob.data.copy() for p in solver.net.parameters}


def assert_equal(ours, expected):
    for label, values in (ours or {}).items():
        assert np.abs(values - expected[label]).max() <= 1e-5 * np.abs(expected[label]).max(), label


# Where two inputs of a max pooling window nearly tie, rounding, and so the order of adding, decides which one gets the
# gradient; average pooling keeps what the other variants are about apart from that.
VARIANTS: dict[str, dict] = {
    "plain": {},
    "max pooling": {"net_options": {"pool": "MAX"}, "run": Run(reduce="chain")},
    "dropout": {"net_options": {"dropout": True}},
    "crop and mirror": {"net_options": {"transform": "crop_size: 24 mirror: true"}},
    "valid labels only": {"net_options": {"loss": "ignore_label: 3"}},
    "batch size": {"net_options": {"loss": "ignore_label: 3 normalization: BATCH_SIZE"}},
    "iter_size and clipping": {"iter_size": 2, "clip_gradients": 0.5, "iterations": 8},
    "unnormalised": {"net_options": {"loss": "normalization: NONE"}, "base_lr": 0.0005},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_strong_scaling_equals_one_rank(folder, variant):
    expected = COMM.bcast(train(folder, 1, **VARIANTS[variant]))
    for size in SIZES[1:]:
        assert_equal(train(folder, size, **VARIANTS[variant]), expected)


@needs_onednn
@pytest.mark.parametrize("variant", VARIANTS)
def test_strong_scaling_equals_one_rank_on_onednn(folder, variant):
    """The order of oneDNN's sums depends on the batch, so the net is one in which rounding stays rounding."""
    options = {"engine": "onednn", **VARIANTS[variant]}
    options["net_options"] = {**options.get("net_options", {}), "smooth": True}
    expected = COMM.bcast(train(folder, 1, **options))
    for size in SIZES[1:]:
        assert_equal(train(folder, size, **options), expected)


def test_weak_scaling_equals_one_rank_with_all_batches(folder):
    for size in SIZES[1:]:
        expected = COMM.bcast(train(folder, 1, iterations=8, net_options={"batch": 6 * size}))
        assert_equal(train(folder, size, iterations=8, scaling="weak", net_options={"batch": 6}), expected)


def test_one_rank_does_learn(folder):
    before = COMM.bcast(train(folder, 1, iterations=0))
    after = COMM.bcast(train(folder, 1))
    assert all(np.abs(after[label] - before[label]).max() > 0 for label in before)
