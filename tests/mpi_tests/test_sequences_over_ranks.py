"""Nets over sequences: ranks that divide the sentences or rows of a batch compute what one rank computes."""

import numpy as np
import pytest
from mpi4py import MPI

from scaffe import models
from scaffe.compute import Compute
from scaffe.models.rows import write_rows
from scaffe.parallel.world import World
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
SIZES = [size for size in (2, 3) if size <= COMM.size][-1:]  # each size in the run on so many ranks
pytestmark = pytest.mark.mpi
CLASSES = 10
NETS = {
    "gnmt": dict(hidden=8, layers=3, steps=5, source_words=10),
    "word_lm": dict(hidden=8, layers=1, steps=4),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("h5py")
    folder = COMM.bcast(tmp_path_factory.mktemp("sequences") if COMM.rank == 0 else None)
    if COMM.rank == 0:
        for name in NETS:
            model = models.get(name).sized(**NETS[name])
            text = " ".join(map(str, np.random.default_rng(0).integers(0, 20, 200)))
            rng = np.random.default_rng(1)
            write_rows(
                folder / name, model.of_text(text, CLASSES)[0] if name == "word_lm" else model.made_up(40, CLASSES, rng)
            )
    COMM.Barrier()
    return folder


def trained(name, folder, size):
    """Return the parameters after 6 iterations on `size` ranks, on those ranks; None on the others."""
    comm = COMM.Split(0 if COMM.rank < size else MPI.UNDEFINED)
    if comm == MPI.COMM_NULL:
        return None
    model = models.get(name).sized(**NETS[name])
    param = model.solver()
    for field in ("net", "test_iter", "test_interval"):
        param.ClearField(field)
    param.net_param.CopyFrom(model.train_val(batch=6, classes=CLASSES))
    for layer in param.net_param.layer:
        if layer.type == "HDF5Data":
            layer.hdf5_data_param.source = f"{folder}/{name}/train.txt"
    # SGD: Adam enlarges gradients that are nothing but rounding, as that of the query's bias nearly is.
    param.type, param.base_lr, param.momentum = "SGD", 0.5, 0.9
    param.ClearField("momentum2")
    param.random_seed, param.snapshot, param.display = 1, 0, 0
    solver = Solver(param, world=World(comm), compute=Compute("reference"))
    solver.step(6)
    solver.parts.propagate.sync()
    solver.close()
    comm.Free()
    return {p.label: p.blob.data.copy() for p in solver.net.parameters}


@pytest.mark.parametrize("name", NETS)
def test_ranks_equal_one(name, folder):
    expected = COMM.bcast(trained(name, folder, 1))
    largest = max(np.abs(values).max() for values in expected.values())
    for size in SIZES:
        for label, values in (trained(name, folder, size) or {}).items():
            assert np.abs(values - expected[label]).max() <= 1e-5 * largest, label
