"""A run without its root goes back to a snapshot of its own, never to one that another run has left."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from collectives import RankLostError
from scaffe.files import snapshot
from scaffe.files.states import Origin
from scaffe.monitor.record import RankRecord
from scaffe.parallel.run import Run
from scaffe.training.checkpoints import Checkpoints


class Ranks:
    """A World whose root is this rank, with another rank whose snapshots are given."""

    def __init__(self, others: set[str]):
        self.others, self.record = others, RankRecord()

    def allgather(self, mine):
        return [mine, self.others]

    def on_root(self, work):
        return work()


@pytest.fixture
def checkpoints(tmp_path: Path, monkeypatch) -> Checkpoints:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(snapshot, "read", lambda path: SimpleNamespace(path=path))
    world, param = Ranks(set()), SimpleNamespace(snapshot_prefix="snap")
    job = SimpleNamespace(world=world, param=param, run=Run(), iter=0, origin=Origin(), progress=lambda: None)
    paths = lambda iteration: (f"snap_iter_{iteration}.caffemodel", f"snap_iter_{iteration}.solverstate")  # noqa: E731
    parts = SimpleNamespace(propagate=SimpleNamespace(sync=lambda: None), watch=None)
    parts.snapshots = SimpleNamespace(paths=paths, writer=SimpleNamespace(join=lambda: None), collect=lambda: None)
    return Checkpoints(job, parts, lambda: [])


def write(iteration: int) -> str:
    """Write the two files of a snapshot; return the state's path."""
    Path(f"snap_iter_{iteration}.caffemodel").touch()
    Path(f"snap_iter_{iteration}.solverstate").touch()
    return f"snap_iter_{iteration}.solverstate"


def test_snapshots_of_another_run_are_passed_over(checkpoints) -> None:
    for older in (2, 9):
        write(older)
    assert checkpoints.newest_own() is None
    checkpoints.job.iter = 4
    checkpoints._save(lambda progress: write(4))
    assert checkpoints.newest_own() == "snap_iter_4.solverstate"


def test_those_of_any_rank_count_where_the_root_has_changed(checkpoints) -> None:
    write(4), write(6)
    checkpoints.job.world.others = {"snap_iter_6.solverstate"}
    assert checkpoints.newest_own() == "snap_iter_6.solverstate"


@pytest.mark.parametrize(("older", "expected"), [(False, "snap_iter_4.solverstate"), (True, None)])
def test_a_file_that_is_still_another_runs_does_not_count(checkpoints, older, expected) -> None:
    if older:
        write(4)
    checkpoints.job.iter = 4
    checkpoints._save(lambda progress: None, meanwhile=True)
    write(4)
    assert checkpoints.newest_own() == expected


@pytest.mark.parametrize(("older", "expected"), [((), "snap_iter_4.solverstate"), ((4,), None)])
def test_one_that_is_written_when_the_root_is_lost_counts(checkpoints, older, expected) -> None:
    for iteration in older:
        write(iteration)
    checkpoints.job.iter = 4

    def lost(progress):
        write(4)
        raise RankLostError("the root")

    with pytest.raises(RankLostError):
        checkpoints._save(lost)
    assert checkpoints.newest_own() == expected


def test_the_snapshot_that_a_run_continues_counts(checkpoints) -> None:
    own, checkpoints.job.iter = write(4), 4
    write(2)
    Path("other.solverstate").touch()
    assert checkpoints._restored_own("other.solverstate") == set()
    assert checkpoints._restored_own("./snap_iter_4.solverstate") == {own}


def test_the_lock_of_a_lost_root_is_taken_over_once(checkpoints) -> None:
    taken = []
    checkpoints.job.param.snapshot = 2
    checkpoints.job.lock = SimpleNamespace(take=lambda known: taken.append(known) or "this job's")
    checkpoints.job.world.others = "the lost root's"
    for _ in range(2):
        checkpoints.keep_prefix()
    assert taken == [{"", "the lost root's"}] and checkpoints._lock_token == "this job's"


def test_a_process_that_may_be_given_up_waits_before_it_writes(checkpoints) -> None:
    done: list[str] = []
    checkpoints.parts.watch = SimpleNamespace(fence=lambda: done.append("waits"))
    checkpoints._save(lambda progress: done.append("writes"))
    assert done == ["waits", "writes"]
