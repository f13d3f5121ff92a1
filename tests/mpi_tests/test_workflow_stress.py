"""However threads and ranks happen to be late: the parameters are SC-B's, to the bit."""

import random
import sys
import time

import nets
import pytest
from mpi4py import MPI

from collectives.staged import Staged
from scaffe.compute import Compute
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
pytestmark = [pytest.mark.mpi(min_size=2)]
ITERATIONS = 80
LONGEST = 200e-6  # seconds of a delay
OFTEN = 1e-5  # seconds after which the interpreter lets another thread run
SHARE = 0.1  # of calls that are delayed
WAYS = [
    ("SC-OB", "helper", "reduce-bcast"),
    ("SC-OBR", "hook", "reduce-bcast"),
    ("SC-OBR", "helper", "reduce-bcast"),
    ("SC-OBR", "helper", "allreduce"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets.shared_folder(COMM, tmp_path_factory, "stress")


@pytest.fixture(scope="module")
def expected(folder):
    """Return SC-B's parameters, of a run in which nothing is delayed."""
    return parameters(make(folder, workflow="SC-B"))


@pytest.fixture
def often():
    """Have the interpreter go from thread to thread much more often."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(OFTEN)
    yield
    sys.setswitchinterval(interval)


def make(folder, **run):
    param = nets.solver_with(nets.tower(folder / "db", batch=6), base_lr=0.05)
    given = Run(bucket_bytes="3K", reduce="chain", **run)
    return Solver(param, world=World(COMM), compute=Compute(engine="reference"), run=given)


def parameters(solver):
    solver.step(ITERATIONS)
    solver.close()
    return solver.net.packed.data.tobytes()


class Delays:
    """Have calls come late by a random time, now and then; each rank and thread by another."""

    def __init__(self, seed):
        self.random = random.Random(1000 * seed + COMM.rank)

    def before(self, call):
        def late(*args, **kwargs):
            if self.random.random() < SHARE:
                time.sleep(self.random.uniform(0, LONGEST))
            return call(*args, **kwargs)

        return late


@pytest.mark.parametrize(("workflow", "drive", "sync"), WAYS)
def test_delays_anywhere_change_no_bit(folder, expected, often, monkeypatch, workflow, drive, sync):
    seed = WAYS.index((workflow, drive, sync))
    delays = Delays(seed)
    for name in ("progress", "ready", "_begin", "_end"):
        monkeypatch.setattr(Staged, name, delays.before(getattr(Staged, name)))
    solver = make(folder, workflow=workflow, drive=drive, sync=sync)
    for name in ("forward_layer", "backward_layer"):
        monkeypatch.setattr(solver.net, name, delays.before(getattr(solver.net, name)))
    assert parameters(solver) == expected
