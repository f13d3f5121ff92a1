"""Two ranks of two instances: what the root logs of the training is what one rank logs."""

from __future__ import annotations

import logging
import re

import nets
import pytest
from mpi4py import MPI

from scaffe.compute import Compute
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
pytestmark = [pytest.mark.mpi(min_size=2)]
INSTANCES = 2


@pytest.fixture
def lines(tmp_path_factory, caplog):
    """Train two iterations on the ranks of a communicator; return the lines of its log."""
    folder = nets.shared_folder(COMM, tmp_path_factory, "shown")

    def run(comm, instances: Instances) -> list[str]:
        caplog.clear()
        param = nets.solver_with(nets.lenet(folder / "db", 12, smooth=True), base_lr=0.01, display=1)
        with caplog.at_level(logging.INFO, "scaffe"):
            solver = Solver(
                param, world=World(comm), compute=Compute(engine="reference", threads=1), run=Run(reduce="chain"),
                instances=instances,
            )  # fmt: skip
            solver.step(2)
            solver.close()
        return [entry.getMessage() for entry in caplog.records]

    return run


def outputs(lines: list[str]) -> list[float]:
    return [float(found[1]) for line in lines if (found := re.search(r"output #\d+: \w+ = (\S+)", line))]


def test_outputs_places_and_the_batchs_division(lines) -> None:
    alone = lines(MPI.COMM_SELF, Instances())
    several = lines(COMM, Instances(INSTANCES, gather="slices", oversubscribe=True))
    assert outputs(several) == pytest.approx(outputs(alone), rel=1e-3) and len(outputs(alone)) == 4
    who = f"{COMM.size} ranks x {INSTANCES} instances"
    assert f"{who}, gather slices, 1 thread(s) each" in several
    assert any(line.endswith(f"strong scaling divides it over {who}") for line in several)
    places = [line.split(":")[0] for line in several if re.match(r"rank \d, instance \d: domain \d", line)]
    assert places == [f"rank {r}, instance {i}" for r in range(COMM.size) for i in range(INSTANCES)]
