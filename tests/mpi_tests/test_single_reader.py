"""One reader for all ranks gives them what each would have read itself."""

import os

import nets
import numpy as np
import pytest
from mpi4py import MPI
from PIL import Image

from readers import Reading, RecordError
from scaffe.compute import Compute
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
pytestmark = pytest.mark.mpi

NET = """
layer { name: "d" type: "ImageData" top: "data" top: "label" transform_param { crop_size: 6 mirror: true scale: 0.01 }
  image_data_param { source: "list" batch_size: 10 shuffle: true } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One working directory for all ranks, with 25 images and their list."""
    folder, before = COMM.bcast(tmp_path_factory.mktemp("single")), os.getcwd()
    os.chdir(folder)
    if COMM.rank == 0:
        for number, image in enumerate(np.random.RandomState(0).randint(0, 256, (25, 8, 9, 3)).astype(np.uint8)):
            Image.fromarray(image).save(f"{number}.png")
        (folder / "list").write_text("".join(f"{number}.png {number % 10}\n" for number in range(25)))
    COMM.Barrier()
    yield folder
    os.chdir(before)


def train(readers: str, drive: str = "hook", scaling: str = "strong", passes: int = 1):
    """Return what the layer gave in the last of some iterations, what it is called, and the parameters."""
    param = nets.solver_with(NET, snapshot_prefix="none", iter_size=passes)
    settings = Reading(readers=readers, threads=2)
    solver = Solver(
        param,
        world=World(COMM),
        compute=Compute(engine="reference"),
        run=Run(drive=drive, scaling=scaling),
        reading=settings,
    )
    solver.step(4)
    solver.parts.propagate.sync()
    layer, blobs = solver.net.layers[0], solver.net.blobs
    rows = [blobs[name].data.copy() for name in ("data", "label")]
    result = *rows, [layer.origin(row) for row in range(len(rows[0]))], layer.position, solver.net.packed.data.copy()
    solver.close()
    return result


@pytest.mark.parametrize("drive", ["hook", "helper"])
@pytest.mark.parametrize("scaling", ["strong", "weak"])
@pytest.mark.parametrize("passes", [1, 2])
def test_each_rank_gets_what_it_would_have_read(folder, drive, scaling, passes):
    for mine, expected in zip(
        train("single", drive, scaling, passes), train("parallel", drive, scaling, passes), strict=True
    ):
        np.testing.assert_array_equal(mine, expected)


def test_only_the_root_opens_files(folder, monkeypatch):
    opened = []
    from readers import ImageReader

    read = ImageReader.read
    monkeypatch.setattr(ImageReader, "read", lambda self, indices: opened.append(len(indices)) or read(self, indices))
    train("single")
    assert (sum(opened) > 10) == (COMM.rank == 0)  # beyond the first record, of which each learns the shape
    with pytest.raises(RecordError):
        ImageReader("list", "missing").read([0])
