"""The lines of `debug_info` over ranks: the first rank's, at no change of a bit, whatever sends and updates."""

from __future__ import annotations

import logging
import re

import nets
import numpy as np
import pytest
from mpi4py import MPI
from strict_arrays import StrictDevice, StrictGpu

from scaffe.compute import Compute
from scaffe.parallel.run import Run
from scaffe.parallel.workflows.workflow import registered
from scaffe.parallel.world import World
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
RUNS = [
    *(Run(name, reduce="chain", bucket_bytes="2K") for name in registered()),
    Run("SC-OBR", reduce="chain", bucket_bytes="2K", drive="helper"),
    Run("SC-OBR", owners="spread", reduce="chain", bucket_bytes="2K"),
    Run("SC-OB", owners="slices", reduce="ring", bucket_bytes="2K"),
    Run("SC-OB", "allreduce", reduce="ring", bucket_bytes="2K"),
]
pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets.shared_folder(COMM, tmp_path_factory, "debug_info")


def after_three(folder, run, gpu=None, **fields):
    """Return the learned parameters before and after iteration 2, on this rank."""
    param = nets.solver_with(nets.tower(folder / "db"), display=2, **fields)
    world = World(COMM)
    world.take_gpu(gpu)
    solver = Solver(param, world=world, run=run, compute=Compute(engine="reference"))
    found = []
    for steps in (2, 1):
        solver.step(steps)
        found.append([p.blob.data.copy() for p in solver.net.parameters if not p.statistic])
    solver.close()
    return found


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.workflow}-{run.sync}-{run.owners}-{run.drive}")
def test_the_first_rank_alone_has_lines_which_change_no_bit(folder, run, caplog):
    caplog.set_level(logging.WARNING if COMM.rank else logging.INFO)
    before, after = after_three(folder, run, debug_info=True)
    lines = [line for record in caplog.records if (line := record.getMessage()).startswith("    [")]
    _, plain = after_three(folder, run)
    assert [one.tobytes() for one in after] == [one.tobytes() for one in plain]
    updates = [re.search(r"data: (\S+); diff: (\S+)$", line) for line in lines if "[Update]" in line]
    if COMM.rank:
        assert not lines
        return
    assert sum("[Backward] All net params" in line for line in lines) == 2  # of iterations 0 and 2
    assert len(updates) == 2 * len(before)
    for found, old, new in zip(updates[len(before) :], before, after, strict=True):
        assert float(found[1]) == pytest.approx(np.abs(old).mean(dtype=np.float64), rel=1e-5)
        assert float(found[2]) == pytest.approx(np.abs(old - new).mean(dtype=np.float64), rel=1e-3, abs=1e-9)


def test_values_of_a_device_are_read_from_it(folder, caplog):
    caplog.set_level(logging.WARNING if COMM.rank else logging.INFO)
    run = Run("SC-OBR", reduce="chain", bucket_bytes="2K")
    host = after_three(folder, run, debug_info=True)
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("    [")]
    caplog.clear()
    device = after_three(folder, run, StrictGpu(StrictDevice()), debug_info=True)
    assert [line for r in caplog.records if (line := r.getMessage()).startswith("    [")] == lines
    assert [one.tobytes() for one in device[1]] == [one.tobytes() for one in host[1]]
