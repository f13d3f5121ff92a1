"""Tests and features by the instances of several ranks: the bits of one instance on one rank."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import nets
import numpy as np
import pytest
from mpi4py import MPI

import scaffe
from scaffe.commands.running import close, open_nets
from scaffe.compute import Compute
from scaffe.parallel.evaluate import BatchResult, run_batches
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.team import Team
from scaffe.parallel.world import World
from scaffe.tools.features import extract
from scaffe.training import tests
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
pytestmark = pytest.mark.mpi
BATCH = 10  # enough for the training of 3 instances on 3 ranks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = nets.shared_folder(COMM, tmp_path_factory, "inference", count=24)
    if COMM.rank == 0:
        (folder / "net.prototxt").write_text(nets.lenet(folder / "db", BATCH))
        net = scaffe.Net(folder / "net.prototxt", scaffe.TEST)
        net.save(folder / "w.caffemodel")
        net.close()
    COMM.Barrier()
    return folder


def inferred(folder: Path, comm: MPI.Intracomm, instances: str, iterations: int) -> tuple[list[BatchResult], bytes]:
    """Return what a test gives, and the bytes of a file of features."""
    world = World(comm)
    team = Team(world, Instances(instances, oversubscribe=True))
    a = Namespace(model=folder / "net.prototxt", weights=str(folder / "w.caffemodel"))
    given = Namespace(**vars(a), iterations=iterations, level=None, stage="")
    compute = Compute(device="cpu", threads=1)
    tested = open_nets(world, team, given, compute, scaffe.TEST, iterations)
    results = run_batches(tested, iterations, world, team)
    for net in tested:
        net.close()
    file = folder / f"{comm.size}x{instances}.npy"
    read = open_nets(world, team, given, compute, scaffe.TEST, iterations)
    counts = extract(read, {"ip1": str(file)}, iterations, world, team, "npy")
    close(team, read)
    assert counts == {"ip1": BATCH * iterations if world.is_root else 0}
    comm.Barrier()
    return results, file.read_bytes()


@pytest.mark.parametrize(("instances", "iterations"), [("2", 7), ("3", 7), ("3", 1)])
def test_instances_of_ranks_infer_as_one(folder: Path, instances: str, iterations: int) -> None:
    results, features = inferred(folder, COMM.Dup(), instances, iterations)
    alone = COMM.Split(COMM.rank)
    expected, expected_features = inferred(folder, alone, "1", iterations) if COMM.rank == 0 else (None, None)
    expected, expected_features = COMM.bcast((expected, expected_features))
    assert [batch.number for batch in results] == list(range(iterations))
    assert results == expected
    assert features == expected_features


def test_a_solver_tests_by_its_instances(folder: Path) -> None:
    """Its test net gives what the net alone gives with the solver's weights, test after test."""
    param = nets.solver_with(nets.lenet(folder / "db", BATCH), test_iter=[5], test_interval=100)
    given = Instances("3", oversubscribe=True)
    solver = Solver(param, world=World(COMM.Dup()), compute=Compute(device="cpu", threads=1), instances=given)
    assert len(solver.parts.tests[0]) == 3 and solver.test_nets == [solver.parts.tests[0][0]]
    found = []
    for _ in range(2):
        found += tests.run_one(solver.job, solver.parts, 0)
        solver.job.tests_done += 1
    for nets_of_instances in solver.parts.tests:
        assert {net.packed.data.ctypes.data for net in nets_of_instances} == {solver.net.packed.data.ctypes.data}
    alone = scaffe.Net(folder / "net.prototxt", scaffe.TEST, compute=Compute(device="cpu", threads=1))
    alone.packed.set_data(solver.net.packed.data)
    for batch in found:
        outputs = alone.forward()
        assert {name: value.tolist() for name, value in batch.outputs.items()} == {
            name: np.atleast_1d(value).astype(np.float64).reshape(-1).tolist() for name, value in outputs.items()
        }
    alone.close()
    solver.close()


def test_a_resumed_run_tests_the_batches_that_follow(folder: Path) -> None:
    param = nets.solver_with(
        nets.lenet(folder / "db", BATCH), test_iter=[3], test_interval=100, snapshot_prefix=str(folder / "s")
    )

    def opened() -> Solver:
        given = Instances("2", oversubscribe=True)
        return Solver(param, world=World(COMM.Dup()), compute=Compute(device="cpu", threads=1), instances=given)

    first = opened()
    first.test_all()
    path = first.snapshot()
    expected = tests.run_one(first.job, first.parts, 0)
    first.close()
    then = opened()
    then.restore(path)
    assert tests.run_one(then.job, then.parts, 0) == expected
    then.close()
