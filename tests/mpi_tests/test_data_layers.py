"""Training from files of every kind: P ranks compute what one computes, and go on where others stopped."""

import os

import nets
import numpy as np
import pytest
from mpi4py import MPI
from over_ranks import net_of
from PIL import Image

from scaffe.compute import Compute
from scaffe.parallel.evaluate import batch_numbers, run_batches
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.team import Team
from scaffe.parallel.world import World
from scaffe.training.solver import Solver

h5py = pytest.importorskip("h5py", reason="h5py is not installed")

COMM = MPI.COMM_WORLD
pytestmark = pytest.mark.mpi

LAYERS = {
    "ImageData": """transform_param { scale: 0.01 crop_size: 6 mirror: true }
      image_data_param { source: "list" batch_size: 10 shuffle: true new_height: 8 new_width: 8 }""",
    "HDF5Data": 'hdf5_data_param { source: "rows" batch_size: 10 shuffle: true }',
    "MemoryData": "memory_data_param { batch_size: 10 channels: 3 height: 8 width: 8 }",
    "WindowData": """transform_param { crop_size: 6 mirror: true }
      window_data_param { source: "windows" batch_size: 10 scale: 0.01 context_pad: 1 }""",
}
NET = """
layer {{ name: "d" type: "{kind}" top: "data" top: "label" {fields} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""
WRITING = """
layer { name: "d" type: "HDF5Data" top: "data" top: "label" hdf5_data_param { source: "rows" batch_size: 3 } }
layer { name: "o" type: "HDF5Output" bottom: "data" bottom: "label" hdf5_output_param { file_name: "o.h5" } }
"""
IMAGES = np.random.RandomState(0).randint(0, 256, (25, 8, 9, 3)).astype(np.uint8)
PLANES = (IMAGES[:20, :, :8].transpose(0, 3, 1, 2) / 255).astype(np.float32)
LABELS = np.arange(25) % 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One working directory for all ranks, with images, rows, windows and their lists."""
    folder = COMM.bcast(tmp_path_factory.mktemp("layers"))
    before = os.getcwd()
    os.chdir(folder)
    if COMM.rank == 0:
        for number, image in enumerate(IMAGES):
            Image.fromarray(image).save(f"{number}.png")
        (folder / "list").write_text("".join(f"{number}.png {label}\n" for number, label in enumerate(LABELS)))
        windows = "1 1 1 1 6 6\n2 0.9 0 0 5 7\n0 0 2 2 8 7"
        (folder / "windows").write_text("".join(f"# {n}\n{n}.png 3 8 9 3\n{windows}\n" for n in range(25)))
        for name, rows in (("a.h5", np.s_[:14]), ("b.h5", np.s_[14:])):
            with h5py.File(name, "w") as file:
                file["data"], file["label"] = PLANES[rows], LABELS[:20][rows]
        (folder / "rows").write_text("a.h5 b.h5")
    COMM.Barrier()
    yield folder
    os.chdir(before)


def train(kind, size, iterations, resume=None, name=None):
    """Return the parameters and position after training on `size` ranks, and the snapshot's path if it has a name."""
    comm = COMM.Split(0 if COMM.rank < size else MPI.UNDEFINED)
    result = None
    if comm != MPI.COMM_NULL:
        param = nets.solver_with(NET.format(kind=kind, fields=LAYERS[kind]), snapshot_prefix=name or "none")
        solver = Solver(param, world=World(comm), compute=Compute(engine="reference"))
        if kind == "MemoryData":
            solver.net.set_input_arrays(PLANES, LABELS[:20])
        if resume:
            solver.restore(resume)
        solver.step(iterations)
        path = solver.snapshot() if name else None
        solver.parts.propagate.sync()
        result = solver.net.packed.data.copy(), solver.net.layers[0].position, path
        solver.close()
        comm.Free()
    return COMM.bcast(result)


@pytest.mark.parametrize("kind", LAYERS)
def test_ranks_train_as_one_and_go_on_on_another_number(folder, kind):
    expected, position, _ = train(kind, 1, 9)
    assert position == 90
    for first, then in ((COMM.size, COMM.size), (1, COMM.size), (COMM.size, 1)):
        _, _, path = train(kind, first, 5, name=f"{kind}{first}{then}")
        parameters, position, _ = train(kind, then, 4, resume=path)
        assert position == 90
        assert np.abs(parameters - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_test_writes_every_row_once_with_its_number(folder):
    world = World(COMM)
    numbers = batch_numbers(world.rank, world.size, 7)
    tested = net_of(WRITING, phase=1, batch_numbers=numbers, file_mark=world.file_mark)
    run_batches([tested], 7, world, Team(world, Instances()))
    tested.close()
    with h5py.File(f"o{world.file_mark}.h5") as file:
        mine = {name: dataset[()] for name, dataset in file.items()}
    rows = np.concatenate(COMM.allgather(mine["row"] if "row" in mine else np.arange(21)))
    data = np.concatenate(COMM.allgather(mine["data"]))
    assert sorted(rows) == list(range(21))
    np.testing.assert_array_equal(data, PLANES[rows % 20])
