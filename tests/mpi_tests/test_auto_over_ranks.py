"""Instances that are auto: whatever is timed, every iteration is that of a run without them, on any number of ranks.

No time is measured here: each rank has a made-up clock.
"""

import nets
import numpy as np
import pytest
from mpi4py import MPI

from scaffe.compute import Compute
from scaffe.parallel.instances.gathers.gather import registered
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.topology import Domain, Topology
from scaffe.parallel.instances.trial import InstancesTrial
from scaffe.parallel.run import Run
from scaffe.parallel.world import open_world
from scaffe.training import auto_instances
from scaffe.training.snapshots import Progress
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
FASTEST = {"1": 2.0, "numa": 1.0, "core": 3.0}  # seconds of an iteration
AUTO = Instances("auto", gather="slices", oversubscribe=True)
NUMBERS = 3 * InstancesTrial.ITERATIONS  # iterations
DELAYS = 4  # that a trial of two instances times
NORM = 'layer { name: "norm" type: "BatchNorm" bottom: "data" top: "norm" }'
pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all ranks, with an LMDB of 50 images: not a multiple of the batch."""
    return nets.shared_folder(COMM, tmp_path_factory, "auto")


@pytest.fixture(autouse=True)
def cores(monkeypatch):
    """Let each rank have four cores in two domains, as far as auto knows; threads run where there are cores."""
    open_world()  # with which the log begins that caplog reads
    found = Topology((Domain(0, (0, 1)), Domain(1, (2, 3))))
    monkeypatch.setattr(auto_instances, "own_topology", lambda world: found)
    monkeypatch.setattr("scaffe.parallel.instances.places.count", lambda n, *given: COUNTS.get(n) or int(n))


COUNTS = {"1": 1, "numa": 2, "core": 4}


def net(folder):
    """Return a net with dropout and random crops, whose batch gives some more rows than others."""
    return nets.tower(folder / "db", batch=14).replace("scale:", "crop_size: 24 mirror: true scale:")


class Trained:
    """A solver whose iterations take as long as `seconds(present)` says on this rank."""

    def __init__(
        self, folder, instances=AUTO, seconds=lambda present: FASTEST.get(present.n), run=None, text="", **fields
    ):
        fields.setdefault("test_iter", [2])
        param = nets.solver_with(text or net(folder), test_interval=5, **fields)
        given = {"compute": Compute(engine="reference"), "run": run or Run()}
        self.solver = Solver(param, instances=instances, **given)
        self.keys, self.used = [], []
        auto = self.solver.job.auto_instances
        took = auto.took
        auto.took = lambda _: took(seconds(auto.present))

    def step(self, iterations):
        """Train, and note the records of each iteration over all ranks, and the instances that computed it."""
        for _ in range(iterations):
            self.solver.step(1)
            mine = [key for one in self.solver.nets for layer in one.data_layers() for key in layer.batch.keys]
            self.keys.append(sorted(sum(COMM.allgather(mine), [])))
            self.used.append(self.solver.job.auto_instances.present)
        return self

    def resume(self, path):
        self.solver.restore(path)
        return self

    def end(self):
        """Return the parameters with the statistics, the root's history, and the next samples of all data layers."""
        solver = self.solver
        solver.parts.propagate.sync()
        values, history = solver.net.packed.data.copy(), COMM.bcast(solver.parts.rule.history[0].copy())
        state = solver.parts.snapshots.state(Progress(solver.iter, solver.job.tests_done, solver.job.seed))
        solver.close()
        return values, history, np.array([position.samples for position in state.position])


def assert_near(ours, expected):
    for mine, theirs in zip(ours, expected, strict=True):
        assert np.abs(mine - theirs).max() <= 1e-5 * np.abs(theirs).max()


@pytest.mark.parametrize("fields", [{}, {"iter_size": 2, "clip_gradients": 5.0}], ids=["plain", "two passes"])
def test_a_run_whose_instances_change_computes_what_one_without_them_does(folder, fields):
    auto, plain = (Trained(folder, given, **fields).step(NUMBERS + 3) for given in (AUTO, Instances()))
    assert [one.n for one in auto.used[:: InstancesTrial.ITERATIONS]] == ["1", "numa", "core", "numa"]
    assert auto.solver.parts.team.size == 2
    assert auto.keys == plain.keys  # no gap, no repetition
    assert_near(auto.end(), plain.end())


def test_measured_statistics_go_on(folder):
    """Of the records' means those over instances are those over the batch."""
    text = nets.softmax_regression(folder / "db", batch=14).replace('bottom: "data"', 'bottom: "norm"')
    head, tail = text.split('layer {\n  name: "ip"')
    text = f'{head}{NORM}\nlayer {{\n  name: "ip"{tail}'
    runs = [Trained(folder, given, text=text, test_iter=[]) for given in (AUTO, Instances())]
    mean, _, factor = zip(
        *[[blob.data for blob in run.step(20).solver.net.params["norm"]] for run in runs], strict=True
    )
    assert_near(mean[:1], mean[1:])
    assert factor[0] == factor[1]
    for run in runs:
        run.end()


def test_all_ranks_take_what_is_fastest_where_it_is_slowest(folder):
    """The ranks' clocks disagree: for the last one two instances are slow."""
    last = COMM.rank == COMM.size - 1
    seconds = {"1": 1.5, "numa": 3.0, "core": 2.0} if last else {"1": 2.5, "numa": 1.0, "core": 2.0}
    auto = Trained(folder, seconds=lambda present: seconds[present.n]).step(NUMBERS + 1)
    assert COMM.allgather(auto.used[-1].n) == ["1" if COMM.size == 1 else "core"] * COMM.size
    auto.end()


def test_a_gather_and_a_delay_that_are_timed_leave_the_bits(folder):
    """Of two instances' gradients each gather makes the same sums."""
    given = Instances(2, launch_groups=2, launch_delay="auto", oversubscribe=True)
    clock = {"slices": 2e-5, "tree:2": 1e-5, "server": 3e-5}
    steps = (len(registered()) + DELAYS) * InstancesTrial.ITERATIONS + 3
    auto = Trained(folder, given, lambda one: clock.get(one.gather, 4e-5) + float(one.launch_delay)).step(steps)
    plain = Trained(folder, Instances(2, gather="slices", oversubscribe=True)).step(steps)
    assert auto.used[-1] == Instances(2, "tree:2", 2, "0", oversubscribe=True)
    assert len({one.launch_delay for one in auto.used}) == DELAYS
    assert all(map(np.array_equal, auto.end(), plain.end()))


def test_a_resume_takes_what_was_taken_without_a_trial(folder):
    prefix = str(folder / "taken")
    first = Trained(folder, snapshot_prefix=prefix).step(NUMBERS + 2)
    resumed = Trained(folder, snapshot_prefix=prefix).resume(first.solver.snapshot()).step(8)
    first.step(8)
    assert {one.n for one in resumed.used} == {"numa"}
    assert resumed.keys == first.keys[-8:]
    assert all(map(np.array_equal, resumed.end(), first.end()))


def test_a_resume_on_other_cores_times_again_and_says_so(folder, monkeypatch, caplog):
    prefix = str(folder / "moved")
    first = Trained(folder, snapshot_prefix=prefix).step(NUMBERS + 1)
    path = first.solver.snapshot()
    monkeypatch.setattr(auto_instances, "own_topology", lambda world: Topology((Domain(0, (0, 1, 2, 3)),)))
    caplog.set_level("INFO", "scaffe")
    resumed = Trained(folder, snapshot_prefix=prefix).resume(path)
    [again] = [text for text in caplog.messages if "timed again" in text]
    assert "4 core(s) in 2 domain(s)" in again and "4 core(s) in 1 domain(s)" in again
    assert [one.n for one in resumed.step(NUMBERS).used] == [
        n for n in COUNTS for _ in range(InstancesTrial.ITERATIONS)
    ]
    resumed.end()
    first.end()


def test_a_resume_within_the_trial_begins_it_again(folder):
    prefix = str(folder / "within")
    first = Trained(folder, snapshot_prefix=prefix).step(8)
    resumed = Trained(folder, snapshot_prefix=prefix).resume(first.solver.snapshot()).step(12)
    first.step(12)
    assert [one.n for one in resumed.used] == ["1"] * 6 + ["numa"] * 6
    assert resumed.keys == first.keys[-12:]
    assert_near(resumed.end(), first.end())


def test_workflows_are_timed_after_the_instances(folder):
    auto = Trained(folder, run=Run("auto"))
    if COMM.size > 1:
        tried = len(auto.solver.job.run.candidates)
        assert tried > 1
    auto.step(NUMBERS)
    assert len(auto.solver.parts.trial.workflows) == 1
    auto.step(1)
    assert len(auto.solver.parts.trial.workflows) == (1 if COMM.size == 1 else 2)
    auto.end()


def test_nets_that_a_user_holds_have_the_parameters_of_those_in_their_place(folder):
    auto = Trained(folder)
    held = auto.solver.net, auto.solver.test_nets[0]
    auto.step(NUMBERS + 1)
    assert held[0] is not auto.solver.net
    for old in held:
        assert np.array_equal(old.params["ip1"][0].data, auto.solver.net.params["ip1"][0].data)
    held[0].params["ip1"][0].data[...] = 0.25
    auto.solver.step(0)
    assert (auto.solver.net.params["ip1"][0].data == 0.25).all()
    auto.end()
