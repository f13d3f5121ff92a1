"""A run without its root goes back to a snapshot of its own, never to one that another run has left."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from collectives import RankLostError
from scaffe.files import snapshot
from scaffe.files.states import Origin
from scaffe.monitor.record import RankRecord
from scaffe.training.saved_solver import SavedSolver


class Ranks:
    """A World whose root is this rank, with another rank whose snapshots are given."""

    def __init__(self, others: set[str]):
        self.others, self.record = others, RankRecord()

    def allgather(self, mine):
        return [mine, self.others]

    def on_root(self, work):
        return work()


@pytest.fixture
def solver(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(snapshot, "read", lambda path: SimpleNamespace(path=path))
    solver = SavedSolver.__new__(SavedSolver)
    solver.world, solver.param = Ranks(set()), SimpleNamespace(snapshot_prefix="snap")
    solver.trial = SimpleNamespace(workflow=SimpleNamespace(propagate=SimpleNamespace(sync=lambda: None)))
    solver.watch, solver.iter, solver.tests_done, solver.seed, solver.origin = None, 0, 0, 1, Origin()
    paths = lambda iteration: (f"snap_iter_{iteration}.caffemodel", f"snap_iter_{iteration}.solverstate")  # noqa: E731
    writer = SimpleNamespace(join=lambda: None)
    solver.own_snapshots, solver.snapshots = set(), SimpleNamespace(paths=paths, writer=writer)
    return solver


def write(iteration: int) -> str:
    """Write the two files of a snapshot; return the state's path."""
    Path(f"snap_iter_{iteration}.caffemodel").touch()
    Path(f"snap_iter_{iteration}.solverstate").touch()
    return f"snap_iter_{iteration}.solverstate"


def test_snapshots_of_another_run_are_passed_over(solver) -> None:
    for older in (2, 9):
        write(older)
    assert solver._newest_own() is None
    solver.iter = 4
    solver._save(lambda progress: write(4))
    assert solver._newest_own() == "snap_iter_4.solverstate"


def test_those_of_any_rank_count_where_the_root_has_changed(solver) -> None:
    write(4), write(6)
    solver.world.others = {"snap_iter_6.solverstate"}
    assert solver._newest_own() == "snap_iter_6.solverstate"


@pytest.mark.parametrize(("older", "expected"), [(False, "snap_iter_4.solverstate"), (True, None)])
def test_a_file_that_is_still_another_runs_does_not_count(solver, older, expected) -> None:
    if older:
        write(4)
    solver.iter = 4
    solver._save(lambda progress: None, meanwhile=True)
    write(4)
    assert solver._newest_own() == expected


@pytest.mark.parametrize(("older", "expected"), [((), "snap_iter_4.solverstate"), ((4,), None)])
def test_one_that_is_written_when_the_root_is_lost_counts(solver, older, expected) -> None:
    for iteration in older:
        write(iteration)
    solver.iter = 4

    def lost(progress):
        write(4)
        raise RankLostError("the root")

    with pytest.raises(RankLostError):
        solver._save(lost)
    assert solver._newest_own() == expected


def test_the_snapshot_that_a_run_continues_counts(solver) -> None:
    own, solver.iter = write(4), 4
    write(2)
    Path("other.solverstate").touch()
    assert solver._restored_own("other.solverstate") == set()
    assert solver._restored_own("./snap_iter_4.solverstate") == {own}


def test_the_lock_of_a_lost_root_is_taken_over_once(solver) -> None:
    taken = []
    solver.param.snapshot, solver.run = 2, SimpleNamespace(snapshot_budget=0)
    solver.lock = SimpleNamespace(take=lambda former: taken.append(former) or "this job's")
    solver.world.others = "the lost root's"
    for _ in range(2):
        solver._keep_prefix()
    assert taken == [{"", "the lost root's"}] and solver._lock_token == "this job's"


def test_a_process_that_may_be_given_up_waits_before_it_writes(solver) -> None:
    done: list[str] = []
    solver.watch = SimpleNamespace(fence=lambda: done.append("waits"))
    solver._save(lambda progress: done.append("writes"))
    assert done == ["waits", "writes"]
