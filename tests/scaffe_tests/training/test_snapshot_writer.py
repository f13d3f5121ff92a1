"""Snapshots written while training goes on: the same files, and one error where they can't be written."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import nets
import numpy as np
import pytest
from conftest import environment

from scaffe.cli import main
from scaffe.errors import SnapshotError
from scaffe.files import weights
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.run import Run
from scaffe.proto import SolverParameter
from scaffe.training import tests
from scaffe.training.signals import ACTIONS
from scaffe.training.snapshot_writer import SHORTEST, Copies, SnapshotBudget, SnapshotWriter
from scaffe.training.solver import Solver

MEANWHILE = Run(snapshot_async=True)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The working directory, with a database to train on."""
    monkeypatch.chdir(tmp_path)
    nets.write_images(tmp_path / "db", 20, (1, 4, 4))
    return tmp_path


@pytest.fixture
def solver():
    """Make solvers of a small net, with the prefix 'snap'."""
    made = []

    def make(run=MEANWHILE, instances=Instances(), **fields):  # noqa: B008  frozen
        param = nets.solver_with(nets.softmax_regression("db"), **{"snapshot_prefix": "snap", "snapshot": 2, **fields})
        made.append(Solver(param, run=run, instances=instances))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def held(monkeypatch):
    """Let the writer begin a file of weights only after the event is set."""
    go, write = threading.Event(), weights.write

    def late(*given):
        assert go.wait(900)
        return write(*given)

    monkeypatch.setattr(weights, "write", late)
    yield go
    go.set()


def contents():
    return {path.name: path.read_bytes() for path in Path().glob("snap*_iter_*")}


@pytest.mark.parametrize("form", [SolverParameter.BINARYPROTO, SolverParameter.HDF5])
@pytest.mark.parametrize("more", [{}, {"snapshot_diff": True}, {"type": "Adam", "momentum": 0.9}])
def test_the_files_are_those_of_a_run_that_waits(solver, form, more):
    solver(Run(snapshot_async=False), snapshot_format=form, **more).step(6)
    expected = contents()
    assert len(expected) == 6
    for name in expected:
        os.unlink(name)
    solver(snapshot_format=form, **more).step(6)
    assert contents() == expected


def test_with_instances_the_files_are_those_of_a_run_that_waits(solver):
    two = Instances(n="2", oversubscribe=True)
    solver(Run(), two).step(6)
    expected = contents()
    for name in expected:
        os.unlink(name)
    solver(MEANWHILE, two).step(6)
    assert contents() == expected


def test_several_solvers_of_a_process_write_at_the_same_time(solver, held):
    held.set()
    solver(Run(), snapshot_prefix="snap_a", random_seed=2).step(2)
    solver(Run(), snapshot_prefix="snap_b", random_seed=3).step(2)
    expected = contents()
    for name in expected:
        os.unlink(name)
    held.clear()
    solvers = [solver(snapshot_prefix=f"snap_{name}", random_seed=seed) for name, seed in (("a", 2), ("b", 3))]
    threading.Timer(0.05, held.set).start()
    for one in solvers:
        one.step(2)
    assert contents() == expected


def test_a_snapshot_is_written_where_it_was_taken_although_the_program_changes_its_folder(
    solver, held, monkeypatch, folder
):
    one = solver(Run(keep_snapshots=1), snapshot=1)
    one.checkpoints.save_meanwhile()
    (folder / "other").mkdir()
    monkeypatch.chdir(folder / "other")
    held.set()
    one.checkpoints.finish()
    expected = [folder / f"snap_iter_0.{kind}" for kind in ("caffemodel", "solverstate")]
    assert sorted(folder.rglob("snap_iter_*")) == expected


def test_a_forked_child_waits_for_no_thread_of_its_parent(solver, held):
    one = solver(snapshot=1)
    one.checkpoints.save_meanwhile()
    child = os.fork()
    if not child:
        try:
            one.parts.snapshots.writer.join()
            one.job.lock.release()
        finally:
            os._exit(not os.path.exists("snap.lock"))
    assert os.waitpid(child, 0)[1] == 0
    held.set()
    one.checkpoints.finish()
    assert len(contents()) == 2


def test_a_snapshot_holds_its_iteration_although_training_goes_on(solver, held):
    held.set()
    solver(Run()).step(2)
    expected = contents()
    for name in expected:  # a run beside them would be another one of the prefix
        Path(name).unlink()
    held.clear()
    one = solver()

    def asked():
        if one.iter == 3:
            held.set()  # so the snapshot of iteration 2 is written after an update of iteration 3
        return [False] * len(ACTIONS)

    one.asked = asked
    one.step(4)
    assert {name: contents()[name] for name in expected} == expected


def test_a_copy_is_not_its_array():
    copies, array = Copies(), np.arange(6.0, dtype=np.float32)
    for values in (array, array + 1):
        copies.begin()
        first, second = copies.take(values), copies.take(values[:2])
        values += 1
        assert np.array_equal(first, values - 1) and np.array_equal(second, values[:2] - 1)


def test_a_snapshot_that_a_user_asks_for_is_there_when_the_call_returns(solver):
    one = solver(snapshot=0)
    one.step(1)
    assert Path(one.snapshot()).exists()


def test_all_snapshots_are_there_when_step_returns(solver):
    one = solver(Run(snapshot_async=True, keep_snapshots=2))
    one.step(6)
    assert sorted(contents()) == [f"snap_iter_{n}.{kind}" for n in (4, 6) for kind in ("caffemodel", "solverstate")]


def test_auto_finds_the_snapshot_that_was_under_way(solver):
    one = solver()
    one.step(2)
    two = solver()
    two.restore("auto")
    assert two.iter == 2 and np.array_equal(two.net.packed.data, one.net.packed.data)


def test_a_function_that_restores_auto_finds_the_snapshot_that_is_under_way(solver, held, monkeypatch):
    def joined(writer):
        held.set()  # so that it is not written before
        join(writer)

    def on_start():
        if one.iter == 3:
            one.restore("auto")

    one, join = solver(), SnapshotWriter.join
    monkeypatch.setattr(SnapshotWriter, "join", joined)
    one.add_callback(on_start, lambda: None)
    one.step(4)
    assert one.iter == 3  # the fourth iteration was the third again


@pytest.mark.parametrize("iterations", [2, 3, 4])
def test_a_snapshot_that_fails_ends_the_step_with_one_error(solver, monkeypatch, capsys, iterations):
    one = solver()
    text = r"snap_iter_2\.caffemodel: can't write \d+ bytes: no space left on device"
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(SnapshotError, match=text):
            one.step(iterations)
    told = f"The snapshot under way is not written: {Path.cwd()}/snap_iter_2"
    assert capsys.readouterr().err.count(told) == 1
    assert not contents()
    one.snapshot()
    assert set(contents()) == {f"snap_iter_{one.iter}.{kind}" for kind in ("caffemodel", "solverstate")}


def test_a_snapshot_that_fails_ends_the_run_before_the_next_one(solver, monkeypatch):
    one = solver(snapshot=3)
    start = SnapshotWriter.start

    def started(writer, write):
        start(writer, write)
        writer._thread.join()

    monkeypatch.setattr(SnapshotWriter, "start", started)
    monkeypatch.setattr("os.fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(SnapshotError, match="no space left on device"):
        one.step(1000)
    assert one.iter == 4


def test_a_run_that_fails_keeps_the_lock_until_its_snapshot_is_written(folder, held, monkeypatch):
    nets.write_solver(folder, nets.softmax_regression("db"), snapshot=2, snapshot_prefix="snap", max_iter=4)
    locked = []

    def write(content, path, *given):
        held.wait(900)
        locked.append(os.path.exists("snap.lock"))
        return ""

    def fail(self):
        threading.Timer(0.05, held.set).start()
        raise RuntimeError("a defect")

    monkeypatch.setattr(weights, "write", write)
    monkeypatch.setattr(Solver, "test_all", fail)
    monkeypatch.setattr(tests, "is_due", lambda job, parts: job.iter == 3)
    assert main(["train", "--solver", "solver.prototxt", "--snapshot-async"]) == 1
    assert locked == [True] and len(contents()) == 1 and not os.path.exists("snap.lock")


def test_the_lock_is_kept_until_the_snapshot_is_written(solver, held):
    one = solver(max_iter=2)
    one.step(1)
    threading.Timer(0.05, held.set).start()
    one.step(1)
    one.close()
    assert len(contents()) == 2 and not os.path.exists("snap.lock")


# A run that is killed.

KILLED = """
import os, signal, sys
from scaffe.parallel.run import Run
from scaffe.training.solver import Solver
import readers.files as files

step, replace = int(sys.argv[1]), os.replace
calls = iter(range(100))
def killing(*given):
    if next(calls) == step:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*given)
os.replace = killing
Solver("solver.prototxt", run=Run(snapshot_async=True, keep_snapshots=1)).step(6)
"""


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_run_that_is_killed_while_it_writes_goes_on_from_the_newest_whole_snapshot(folder, solver, step):
    nets.write_solver(folder, nets.softmax_regression("db"), snapshot=2, snapshot_prefix="snap")
    run = subprocess.run(
        [sys.executable, "-c", KILLED, str(step)], cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert run.returncode == -signal.SIGKILL, run.stderr
    whole = step // 2 * 2
    two = solver(Run())
    two.restore("auto")
    assert two.iter == whole
    two.step(6 - two.iter)
    straight = solver(Run(), snapshot_prefix="straight")
    straight.step(6)
    assert np.array_equal(two.net.packed.data, straight.net.packed.data)
    assert not list(Path().glob("*.tmp"))


# The budget.


def test_a_budget_is_never_exceeded():
    now = 0.0
    budget = SnapshotBudget(0.05, lambda: now)
    spent, taken = 0.0, 0
    for second in range(2000):
        now = float(second)
        if budget.is_due():
            cost = 1.5 if taken % 3 else 0.5
            budget.took(cost)
            spent, taken = spent + cost, taken + 1
            assert taken == 1 or spent <= 0.05 * now + 1  # the last one may have cost more than was predicted
    assert spent >= 0.9 * 0.05 * 2000


def test_a_budget_has_no_snapshot_taken_every_moment():
    now = 0.0
    budget = SnapshotBudget(0.5, lambda: now)
    assert not budget.is_due()
    now = SHORTEST
    assert budget.is_due()
    budget.took(0.001)
    assert not budget.is_due()
    now = 2 * SHORTEST
    assert budget.is_due()


def test_a_run_with_a_budget_takes_snapshots_by_it_and_not_at_the_interval(solver):
    one = solver(Run(snapshot_budget=0.9))
    budget = SnapshotBudget(0.5, lambda: {0: 0, 1: 11, 2: 11, 3: 15, 4: 30, 5: 31}.get(one.iter, 32))
    one.checkpoints.budget = budget
    budget.took = lambda seconds: SnapshotBudget.took(budget, 1.0)  # however slow the disk is
    one.step(6)
    assert sorted(contents()) == [f"snap_iter_{n}.{kind}" for n in (2, 5) for kind in ("caffemodel", "solverstate")]


def test_a_run_with_a_budget_ends_with_a_snapshot_where_the_interval_ends_too(solver):
    one = solver(Run(snapshot_budget=0.03), snapshot_after_train=True, max_iter=4)
    one.checkpoints.budget = SnapshotBudget(0.03, lambda: 0.0)  # by which none is due
    one.solve()
    assert sorted(contents()) == ["snap_iter_4.caffemodel", "snap_iter_4.solverstate"]
