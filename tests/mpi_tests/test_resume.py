"""Resume equals no stop: a run that goes on from a snapshot computes what it would have computed without one."""

import nets
import numpy as np
import pytest
from mpi4py import MPI

from scaffe.errors import ScaffeError
from scaffe.parallel.run import Run as Parallel
from scaffe.parallel.world import World
from scaffe.training import tests
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
TRAINED = {"dropout": True, "transform": "crop_size: 24 mirror: true", "batch": 12}
TESTS = {"test_iter": [3], "test_interval": 5}
pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all ranks, with an LMDB of 50 images: batches wrap around in the middle."""
    return nets.shared_folder(COMM, tmp_path_factory, "resume")


class Run:
    """A solver on the first `size` ranks; on the others its methods do nothing."""

    def __init__(self, folder, name, size=COMM.size, pool="MAX", sync="reduce-bcast", **fields):
        self.comm = COMM.Split(0 if COMM.rank < size else MPI.UNDEFINED)
        self.solver = None
        if self.comm != MPI.COMM_NULL:
            net = nets.lenet(folder / "db", pool=pool, **TRAINED)
            param = nets.solver_with(net, snapshot_prefix=str(folder / name), **{**TESTS, **fields})
            self.solver = Solver(param, world=World(self.comm), run=Parallel(sync=sync))

    def train(self, iterations):
        if self.solver:
            self.solver.step(iterations)
        return self

    def snapshot(self):
        """Return the path of the snapshot, on all ranks of the job."""
        return COMM.bcast(self.solver and self.solver.snapshot())

    def resume(self, path):
        if self.solver:
            self.solver.restore(path)
        return self

    def end(self):
        """Return what the solver has come to, on all ranks of the job: the root's parameters and history, positions
        and keys of the next training and test batches, and what a test gives."""
        result = None
        if self.solver:
            result = self._state()
            self.solver.close()
            self.comm.Free()
        return COMM.bcast(result)

    def _state(self):
        solver, world = self.solver, self.solver.world
        solver.parts.propagate.sync()
        state = {
            "iteration": solver.iter,
            "parameters": solver.net.packed.data.copy(),
            "history": world.comm.bcast(solver.parts.rule.history[0].copy()),
            "position": [layer.position for layer in solver.net.data_layers()],
            "tests": tests.run_one(solver.job, solver.parts, 0),
        }
        solver.step(1)
        keys = [key for layer in solver.net.data_layers() for key in layer.batch.keys]
        return state | {"next records": sum(world.comm.allgather(keys), []), "loss": world.allsum(solver.net.loss())}


def assert_same_bits(ours, expected):
    assert ours.keys() == expected.keys()
    for name in ("parameters", "history"):
        assert np.array_equal(ours[name], expected[name]), name
    for name in ("iteration", "position", "next records", "loss"):
        assert ours[name] == expected[name], name
    for mine, theirs in zip(ours["tests"], expected["tests"], strict=True):
        assert mine == theirs  # numbers, losses and outputs


@pytest.mark.parametrize(
    "fields", [{}, {"iter_size": 2}, {"sync": "allreduce"}], ids=["one pass", "two passes", "every rank updates"]
)
def test_ten_and_ten_iterations_are_twenty_to_the_bit(folder, fields):
    name = "bits " + " ".join(fields)
    path = Run(folder, name, **fields).train(10).snapshot()
    resumed = Run(folder, name, **fields).resume(path).train(10).end()
    straight = Run(folder, name, **fields).train(20).end()
    assert straight["iteration"] == 20
    assert_same_bits(resumed, straight)


def test_a_snapshot_changes_nothing_in_the_run_that_takes_it(folder):
    run = Run(folder, "bystander").train(5)
    run.snapshot()
    assert_same_bits(run.train(5).end(), Run(folder, "bystander").train(10).end())


@pytest.mark.parametrize("how", [{}, {"sync": "allreduce"}, {"workflow": "SC-OBR"}], ids=str)
def test_snapshots_written_while_training_goes_on_are_those_of_a_run_that_waits(folder, how):
    written = {}
    for meanwhile in (False, True):
        name = f"meanwhile {meanwhile} {how}"
        param = nets.solver_with(nets.lenet(folder / "db", **TRAINED), snapshot_prefix=str(folder / name), snapshot=2)
        solver = Solver(param, run=Parallel(**how, snapshot_async=meanwhile))
        solver.step(6)
        solver.close()
        written[meanwhile] = [(folder / f"{name}_iter_{n}.caffemodel").read_bytes() for n in (2, 4, 6)]
    assert written[True] == written[False]


def test_a_snapshot_that_fails_while_training_goes_on_fails_on_all_ranks(folder, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    param = nets.solver_with(nets.lenet(folder / "db"), snapshot_prefix=str(folder / "full"), snapshot=2)
    solver = Solver(param, run=Parallel(snapshot_async=True))
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(ScaffeError, match="full_iter_2.caffemodel: can't write .* no space left on device"):
            solver.step(6)
    assert COMM.allgather(solver.iter) == [solver.iter] * COMM.size
    assert solver.iter in (3, 4)  # found by the end of an iteration, or by the next snapshot
    solver.close()


def test_a_prefix_that_another_job_writes_under_is_refused_on_all_ranks(folder):
    prefix = folder / "taken"
    if COMM.rank == 0:
        nets.lock_of_a_running_job(prefix)
    param = nets.solver_with(nets.lenet(folder / "db"), snapshot_prefix=str(prefix), snapshot=1)
    solver = Solver(param)
    with pytest.raises(ScaffeError, match="another job writes there"):
        solver.step(1)
    solver.close()


def test_all_ranks_go_on_from_the_newest_whole_snapshot(folder):
    run = Run(folder, "flipped").train(2)
    run.snapshot()
    expected = run.solver.net.packed.data.copy()
    damaged = run.train(2).snapshot().replace("solverstate", "caffemodel")
    if COMM.rank == 0:
        with open(damaged, "r+b") as file:
            file.seek(5000)
            byte = file.read(1)
            file.seek(5000)
            file.write(bytes([byte[0] ^ 1]))
    run.end()
    resumed = Run(folder, "flipped").resume("auto")
    assert resumed.solver.iter == 2
    resumed.solver.parts.propagate.sync()
    assert np.array_equal(resumed.solver.net.packed.data, expected)
    resumed.end()


def test_a_seed_that_was_drawn_is_resumed(folder):
    straight = Run(folder, "drawn", random_seed=-1).train(4)
    resumed = Run(folder, "drawn", random_seed=-1).resume(straight.snapshot())
    assert_same_bits(resumed.train(4).end(), straight.train(4).end())


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(("first", "then"), [(1, COMM.size), (COMM.size, 1)], ids=["one to all", "all to one"])
def test_a_run_goes_on_on_another_number_of_ranks(folder, first, then):
    # Where two inputs of a maximum nearly tie, rounding would decide which one gets the gradient: hence the average.
    path = Run(folder, "ranks", first, pool="AVE").train(6).snapshot()
    resumed = Run(folder, "ranks", then, pool="AVE").resume(path).train(6).end()
    straight = Run(folder, "ranks", 1, pool="AVE").train(12).end()
    for name in ("iteration", "position", "next records"):
        assert resumed[name] == straight[name], name
    for name in ("parameters", "history"):
        assert np.abs(resumed[name] - straight[name]).max() <= 1e-5 * np.abs(straight[name]).max(), name
