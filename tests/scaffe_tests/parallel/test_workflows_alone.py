"""One rank alone has nobody to overlap messages with: every workflow gives it SC-B's parameters, to the bit."""

from __future__ import annotations

from pathlib import Path

import nets
import pytest
from mpi4py import MPI

from scaffe.compute import Compute
from scaffe.parallel.run import SYNCS, Run
from scaffe.parallel.workflows.workflow import registered
from scaffe.parallel.world import World
from scaffe.training.solver import Solver


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nets.write_images(tmp_path_factory.mktemp("alone") / "db")


def train(db: Path, run: Run, **fields) -> bytes:
    """Return the parameters after ten iterations."""
    param = nets.solver_with(nets.tower(db), base_lr=0.1, **fields)
    solver = Solver(param, world=World(MPI.COMM_SELF), compute=Compute(engine="reference"), run=run)
    before = solver.net.packed.data.tobytes()
    solver.step(10)
    solver.close()
    after = solver.net.packed.data.tobytes()
    assert after != before
    return after


@pytest.mark.parametrize("fields", [{}, {"clip_gradients": 0.05, "iter_size": 2}], ids=str)
def test_alone_every_workflow_gives_the_bits_of_sc_b(db: Path, fields) -> None:
    expected = train(db, Run(), **fields)
    for workflow in ("auto", *registered()):
        for sync in SYNCS:
            for nbytes in ("0", "auto"):
                given = Run(workflow=workflow, sync=sync, bucket_bytes=nbytes, drive="helper", reduce="chain")
                assert train(db, given, **fields) == expected, given
