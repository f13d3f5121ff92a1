"""What follows from what a watch finds, by --stall."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from scaffe.monitor.watching import ABORT, SAY, SHRINK, STALL
from scaffe.parallel.watch import policy
from scaffe.parallel.watch.policy import Policy


@pytest.fixture
def done(monkeypatch) -> list[str]:
    """What was done: "ends" or "kills", in order."""
    done: list[str] = []
    monkeypatch.setattr(policy, "end_job", lambda world, lines: done.append("ends"))
    return done


def process(done: list[str]) -> SimpleNamespace:
    return SimpleNamespace(pid=7, host="vm", kill=lambda: done.append("kills") or True)


WORLD = SimpleNamespace(name_of=lambda number: f"rank {number}", has_spare=lambda number: number == 3)


@pytest.mark.parametrize(("how", "expected"), [(SAY, []), (ABORT, ["ends"]), (SHRINK, ["kills"])])
def test_a_stopped_process(done, caplog, how, expected) -> None:
    Policy(WORLD, how).is_stopped(1, process(done), 60)
    assert done == expected
    assert [text.split(":")[0] for text in caplog.messages] == ["Stall"] * (how != ABORT)


def test_a_stopped_spare_is_killed_where_a_rank_would_end_the_job(done) -> None:
    Policy(WORLD, ABORT).is_stopped(3, process(done), 60)
    assert done == ["kills"]


@pytest.mark.parametrize("how", STALL)
def test_a_rank_that_waits_is_told_of_or_ends_the_job(done, caplog, how) -> None:
    Policy(WORLD, how).waits(["rank 0 has not moved", "rank 1"])
    assert done == ["ends"] * (how == ABORT)
    if how != ABORT:
        assert caplog.messages == ["Stall: rank 0 has not moved", "Stall: rank 1"]


@pytest.mark.parametrize("how", STALL)
def test_a_process_that_mpi_does_not_report_ends_the_job(done, how) -> None:
    Policy(WORLD, how).has_ended("rank 1 has ended")
    assert done == ["ends"]


def test_a_process_that_cannot_be_killed_is_told_of(caplog) -> None:
    def refuse() -> bool:
        raise PermissionError(1, "Operation not permitted")

    Policy(WORLD, SHRINK).is_stopped(1, SimpleNamespace(pid=7, host="vm", kill=refuse), 60)
    assert "process 7 can't be killed: Operation not permitted" in caplog.text
