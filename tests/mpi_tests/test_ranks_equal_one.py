"""The theorem: P ranks that divide the batch compute what one rank with the whole batch computes."""

from dataclasses import replace

import nets
import numpy as np
import pytest
from both_engines import needs_bf16
from mpi4py import MPI

from scaffe.compute import Compute
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
SIZES = [size for size in (2, 3, 4) if size <= COMM.size][-1:]  # each size in the run on so many ranks
pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all ranks, with an LMDB of 50 images: not a multiple of the batch."""
    return nets.shared_folder(COMM, tmp_path_factory, "ranks")


def train(
    folder,
    size,
    *,
    iterations=8,  # of 16: the records end, and begin again, twice
    scaling="strong",
    engine="reference",
    numbers="float32",
    net_options=None,
    run=None,
    **fields,
):
    """Return the parameters after training on `size` ranks, on those ranks; None on the others."""
    comm = COMM.Split(0 if COMM.rank < size else MPI.UNDEFINED)
    if comm == MPI.COMM_NULL:
        return None
    param = nets.solver_with(nets.lenet(folder / "db", **{"pool": "AVE", **(net_options or {})}), **fields)
    given = replace(run or Run(), scaling=scaling)
    solver = Solver(param, world=World(comm), run=given, compute=Compute(engine=engine, numbers=numbers))
    solver.step(iterations)
    solver.parts.propagate.sync()
    solver.close()
    comm.Free()
    return {p.label: p.blob.data.copy() for p in solver.net.parameters}


def assert_equal(ours, expected, tolerance=1e-5):
    for label, values in (ours or {}).items():
        assert np.abs(values - expected[label]).max() <= tolerance * np.abs(expected[label]).max(), label


# Where two inputs of a max pooling window nearly tie, rounding, and so the order of adding, decides which one gets the
# gradient; average pooling keeps what the other variants are about apart from that.
VARIANTS: dict[str, dict] = {
    "plain": {},
    "max pooling": {"net_options": {"pool": "MAX"}, "run": Run(reduce="chain")},
    "dropout": {"net_options": {"dropout": True}},
    "crop and mirror": {"net_options": {"transform": "crop_size: 24 mirror: true"}},
    "valid labels only": {"net_options": {"loss": "ignore_label: 3"}},
    "batch size": {"net_options": {"loss": "ignore_label: 3 normalization: BATCH_SIZE"}},
    "iter_size and clipping": {"iter_size": 2, "clip_gradients": 0.5, "iterations": 4},
    "unnormalised": {"net_options": {"loss": "normalization: NONE"}, "base_lr": 0.0005},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_strong_scaling_equals_one_rank(folder, variant):
    expected = COMM.bcast(train(folder, 1, **VARIANTS[variant]))
    for size in SIZES:
        assert_equal(train(folder, size, **VARIANTS[variant]), expected)


@needs_bf16
@pytest.mark.parametrize("variant", ["max pooling", "dropout", "crop and mirror", "valid labels only"])
def test_an_iteration_in_bf16_rounds_the_same_numbers_on_any_number_of_ranks(folder, variant):
    """Each image's values and gradients are rounded alike, whichever rank has it; sums over images are float32.

    With a rate of 1 the parameters move far enough for their own rounding not to hide a difference.
    """
    options = {"engine": "onednn", "numbers": "bf16", **VARIANTS[variant], "iterations": 1, "base_lr": 1}
    start = COMM.bcast(train(folder, 1, **{**options, "iterations": 0}))
    expected = COMM.bcast(train(folder, 1, **options))
    moved = {label: values - start[label] for label, values in expected.items()}
    for size in SIZES:
        ours = train(folder, size, **options)
        assert_equal(ours and {label: values - start[label] for label, values in ours.items()}, moved)


@needs_bf16
def test_training_in_bf16_on_ranks_stays_within_bf16s_rounding(folder):
    """A weight that float32's rounding takes past the middle of two bfloat16 numbers is multiplied as the other."""
    options = {"engine": "onednn", "numbers": "bf16", "net_options": {"smooth": True}}
    expected = COMM.bcast(train(folder, 1, **options))
    for size in SIZES:
        assert_equal(train(folder, size, **options), expected, tolerance=2**-7)


def test_weak_scaling_equals_one_rank_with_all_batches(folder):
    for size in SIZES:
        expected = COMM.bcast(train(folder, 1, iterations=8, net_options={"batch": 6 * size}))
        assert_equal(train(folder, size, iterations=8, scaling="weak", net_options={"batch": 6}), expected)


def test_one_rank_does_learn(folder):
    before = COMM.bcast(train(folder, 1, iterations=0))
    after = COMM.bcast(train(folder, 1))
    assert all(np.abs(after[label] - before[label]).max() > 0 for label in before)
