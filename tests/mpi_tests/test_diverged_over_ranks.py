"""A gradient that is not finite on one rank ends training on all, with one message, whatever way it travels."""

from math import inf, nan

import pytest
from mpi4py import MPI
from nets import shared_folder, solver_with, tower
from poison import poison
from strict_arrays import StrictDevice, StrictGpu

import scaffe
from scaffe.compute import Compute
from scaffe.errors import DivergedError, ScaffeError
from scaffe.monitor.watching import Watching
from scaffe.parallel import buckets
from scaffe.parallel.run import Run
from scaffe.parallel.world import World

COMM = MPI.COMM_WORLD
pytestmark = pytest.mark.mpi(min_size=2)
WAYS = {
    "one message": {},
    "every rank updates": {"sync": "allreduce"},
    "propagation overlapped": {"workflow": "SC-OB", "drive": "hook"},
    "both, by a hook": {"workflow": "SC-OBR", "drive": "hook", "bucket_bytes": "0"},
    "both, by a helper": {"workflow": "SC-OBR", "drive": "helper", "bucket_bytes": "0"},
    "pieces": {"workflow": "SC-OBR", "drive": "helper", "bucket_bytes": "1000"},
    "every rank updates pieces": {"workflow": "SC-OBR", "sync": "allreduce", "drive": "hook", "bucket_bytes": "1000"},
    "owners of buckets": {"workflow": "SC-OBR", "owners": "spread", "drive": "hook", "bucket_bytes": "1000"},
    "owners of slices": {"workflow": "SC-OB", "owners": "slices", "reduce": "slices", "drive": "hook"},
    "rounded to bf16": {"workflow": "SC-OBR", "gradient_numbers": "bf16", "drive": "hook"},
    "rounded to float16": {"gradient_numbers": "float16", "error_feedback": "on"},
    "rounded to int8": {"workflow": "SC-OBR", "gradient_numbers": "int8", "drive": "hook"},
    "rounded slices": {"gradient_numbers": "int8", "owners": "slices", "reduce": "auto"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return shared_folder(COMM, tmp_path_factory, "diverged")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Let layers of few bytes be cut."""
    monkeypatch.setattr(buckets, "SMALLEST", 64)


@pytest.fixture
def make(folder):
    """Return a function that makes solvers, their snapshots in the folder."""
    made = []

    def make(way, on_device=False, **fields):
        world = World(COMM.Dup())
        world.take_gpu(StrictGpu(StrictDevice(seed=COMM.rank, sharing=False)) if on_device else None)
        param = solver_with(tower(folder / "db"), snapshot_prefix=str(folder / "snap"), **fields)
        run, engine = Run(**{"reduce": "chain", **WAYS[way]}), "auto" if on_device else "reference"
        made.append(
            scaffe.Solver(
                param,
                world=world,
                run=run,
                compute=Compute(engine=engine, graphs="off"),
                watching=Watching(stall_seconds=0),
            )
        )
        return made[-1]

    yield make
    for solver in made:
        solver.parts.propagate.sync()
        solver.close()


def told(solver, iterations):
    """Return what all ranks raise, which must be the same."""
    with pytest.raises(DivergedError) as caught:
        solver.step(iterations)
    [message] = set(COMM.allgather(str(caught.value)))
    return message


@pytest.mark.parametrize(
    ("way", "fields"),
    [
        *((way, {}) for way in WAYS),
        ("pieces", {"iter_size": 2}),
        ("pieces", {"type": "Adam"}),
        ("both, by a hook", {"clip_gradients": 0.1}),
        ("every rank updates", {"clip_gradients": 0.1}),
    ],
)
def test_all_ranks_are_told_before_the_next_update(make, way, fields):
    solver = make(way, **fields)
    if COMM.rank == COMM.size - 1:
        poison(solver, "ip3", 1, nan)
    assert told(solver, 9).startswith("layer 'ip3': parameter 0, or its history, is not finite at iteration 1, ")
    assert solver.iter == 2


@pytest.mark.two_ranks
@pytest.mark.parametrize("way", ["both, by a helper", "every rank updates"])
def test_all_ranks_are_told_by_devices(make, way):
    solver = make(way, on_device=True)
    if COMM.rank == COMM.size - 1:
        poison(solver, "ip3", 1, inf)
    assert told(solver, 9).startswith("layer 'ip3': parameter 0, or its history, is not finite at iteration 1, ")
    assert solver.iter == 2


@pytest.mark.parametrize(
    "way", ["one message", "pieces", "every rank updates pieces", "owners of buckets", "owners of slices"]
)
def test_the_last_iterations_update_is_told_and_before_a_snapshot(make, folder, way):
    solver = make(way, snapshot=2)
    if COMM.rank == COMM.size - 1:
        poison(solver, "ip5", 1)
    assert "layer 'ip5': parameter 0, or its history, is not finite at iteration 1, " in told(solver, 2)
    assert not list(folder.glob("snap_iter*"))
    with pytest.raises(ScaffeError, match="layer 'ip5': the history of parameter 0 is not finite, so no file"):
        solver.snapshot()
    assert not list(folder.glob("snap_iter*"))


def test_a_loss_that_is_not_finite_on_one_rank_is_told_with_its_layer(make):
    solver = make("one message")
    forward = solver.net.layers[-1].forward

    def poisoned(bottom, top):
        forward(bottom, top)
        top[0].data[...] = nan

    if COMM.rank == COMM.size - 1:
        solver.net.layers[-1].forward = poisoned
    assert told(solver, 1).startswith("layer 'loss': the loss is not finite at iteration 0, learning rate 0.01: no upd")
