"""The defaults of solvers on several ranks: the root's seed, and devices on which all agree."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from mpi4py import MPI
from nets import shared_folder, softmax_regression, solver_with

import scaffe
from scaffe import defaults
from scaffe.compute import Compute
from scaffe.defaults import Defaults, set_defaults
from scaffe.errors import LaunchError, ScaffeError
from scaffe.parallel.world import World
from scaffe.training import default_compute

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
LAST = COMM.size - 1


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setattr(defaults, "_present", Defaults())
    monkeypatch.setattr(defaults, "_gpus", {})


@pytest.fixture
def world():
    return World(COMM.Dup())


def take_gpus(monkeypatch, failing=None):
    """Replace the choice of a GPU: each rank finds one, but for the rank that fails."""

    def choose(device, ids):
        if COMM.rank == failing:
            raise LaunchError("no GPU can be used")
        return SimpleNamespace(bus=f"0000:0{COMM.rank}:00.0")

    monkeypatch.setattr(defaults, "choose", choose)


def test_the_roots_default_seed_is_everyones(tmp_path_factory, world):
    db = shared_folder(COMM, tmp_path_factory, "seeds") / "db"
    set_defaults(seed=20 + COMM.rank)
    solver = scaffe.Solver(solver_with(softmax_regression(db), random_seed=-1), world=world)
    assert (solver.job.seed, solver.net.context.seed) == (20, 20)
    solver.close()


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_without_a_mode_of_a_gpu_ranks_take_none(monkeypatch, world, device):
    take_gpus(monkeypatch)
    set_defaults(compute=Compute(device=device))
    assert default_compute.start(world, None) == (world, Compute(device=device))
    assert world.gpu is None


def test_each_rank_takes_its_gpu_and_leaves_it_for_the_cpu(monkeypatch, world):
    take_gpus(monkeypatch)
    set_defaults(compute=Compute(device="cuda"))
    assert default_compute.start(world, None) == (world, Compute())
    assert world.gpus == [f"0000:0{rank}:00.0" for rank in range(COMM.size)] and world.gpu.bus == world.gpus[COMM.rank]
    set_defaults(compute=Compute(device="cpu"))
    assert default_compute.start(world, None) == (world, Compute(device="cpu"))
    assert world.gpu is None and world.gpus == [""] * COMM.size


def test_a_given_compute_goes_before(monkeypatch, world):
    take_gpus(monkeypatch)
    set_defaults(compute=Compute(device="cuda"))
    given = Compute(engine="reference")
    assert default_compute.start(world, given) == (world, given)
    assert world.gpu is None


@pytest.mark.mpi(min_size=2)
def test_where_a_rank_has_no_gpu_all_compute_on_the_cpu_by_the_same_settings(monkeypatch, world):
    take_gpus(monkeypatch)
    mine = Compute(device="cpu" if COMM.rank == LAST else "cuda", deterministic=True)
    set_defaults(compute=mine)
    assert default_compute.start(world, None) == (world, replace(mine, device="auto"))
    assert world.gpu is None


def test_a_gpu_that_a_rank_can_not_have_is_an_error_of_all(monkeypatch, world):
    take_gpus(monkeypatch, failing=LAST)
    set_defaults(compute=Compute(device="cuda"))
    with pytest.raises(ScaffeError, match="no GPU can be used"):
        default_compute.start(world, None)
    assert world.gpu is None
