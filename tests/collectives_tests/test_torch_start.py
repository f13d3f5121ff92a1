"""How torch.distributed finds its ranks where MPI has started them, over a stand-in for MPI."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'scaffe[torch]'")
dist = torch.distributed

from mpi4py import MPI  # noqa: E402

from collectives.errors import ArgumentError  # noqa: E402
from collectives.torch import ending, start  # noqa: E402

MOMENT = timedelta(seconds=0.01)
SET = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"
READ = *start.ADDRESS, *(name for names in start.LOCAL for name in names)


class Ranks:
    """Two ranks of which this is the second; the other one says `other`, or nothing."""

    rank, size = 1, 2

    def __init__(self, other: int | None = 0):
        self.other = other

    def Iallgather(self, mine: Any, every: Any) -> Any:
        every[:] = self.other, mine[0]
        return SimpleNamespace(Test=lambda: self.other is not None)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (*SET, *READ):
        monkeypatch.setenv(name, "")  # for it to be as before in the end
        monkeypatch.delenv(name)
    monkeypatch.setattr(start.StartedRanks, "comm", Ranks())
    yield


def test_the_environment_is_filled_where_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4")
    monkeypatch.setenv("WORLD_SIZE", "9")
    start.fill_environment()
    assert [os.environ.get(name) for name in SET] == ["1", "9", "3", "4"]


def test_ranks_that_are_not_those_of_mpi_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    start.check_ranks(MOMENT)
    monkeypatch.setattr(start.StartedRanks, "comm", Ranks(other=1))
    with pytest.raises(ArgumentError, match="RANK is 1, 1 on the 2 ranks that MPI has started; leave it unset"):
        start.check_ranks(MOMENT)
    for size, advice in (("1", "leave WORLD_SIZE unset, or start as many"), ("3", "start the program by mpirun")):
        monkeypatch.setenv("WORLD_SIZE", size)
        with pytest.raises(ArgumentError, match=f"WORLD_SIZE is {size}, but MPI has started 2; {advice}"):
            start.check_ranks(MOMENT)
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ArgumentError, match="WORLD_SIZE is 'two', no number"):
        start.check_ranks(MOMENT)


def test_ranks_that_do_not_come_are_waited_for_no_longer_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    comm = Ranks()
    monkeypatch.setattr(comm, "Iallgather", lambda mine, every: SimpleNamespace(Test=lambda: False))
    monkeypatch.setattr(start.StartedRanks, "comm", comm)
    with pytest.raises(dist.DistBackendError, match="rank 1 has waited 0.01 s for the 2 ranks that MPI has started"):
        start.check_ranks(MOMENT)


def test_a_group_needs_an_mpi_for_threads_and_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    given = SimpleNamespace(store=dist.HashStore(), group_rank=0, group_size=3, group_id="x", timeout=MOMENT)
    with pytest.raises(ArgumentError, match="3 ranks are asked for, but MPI has started 2; start the program by"):
        start.make_group(given, None)
    monkeypatch.setattr(MPI, "Query_thread", lambda: MPI.THREAD_SERIALIZED)
    with pytest.raises(ArgumentError, match="needs an MPI that was started with MPI_THREAD_MULTIPLE"):
        start.make_group(given, None)


def test_ranks_meet_in_a_store_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start.StartedRanks, "comm", MPI.COMM_SELF)
    monkeypatch.setenv("RANK", "5")
    store, rank, size = start.meet(timedelta(seconds=60))
    store.set("a", "b")
    assert (store.get("a"), rank, size) == (b"b", 5, 1)


def test_only_a_job_that_goes_on_without_a_rank_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "is_tolerant", lambda: False)
    with pytest.raises(ArgumentError, match="only Open MPI's mpirun --with-ft ulfm goes on without a rank"):
        start.shrink()


def test_gloos_barrier_stays_gloos(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(dist, "monitored_barrier", lambda *given: asked.append(given))
    monkeypatch.setattr(dist.distributed_c10d, "monitored_barrier", None)
    start.take_monitored_barrier()
    dist.monitored_barrier("a group of gloo's", 3, True)
    assert (
        asked == [("a group of gloo's", 3, True)] and dist.distributed_c10d.monitored_barrier is dist.monitored_barrier
    )
