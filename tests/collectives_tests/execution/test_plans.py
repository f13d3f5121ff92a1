"""Plans: their turns, their ends, and the executions that a schedule's plan keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from collectives.errors import ArgumentError, RankLostError
from collectives.execution import plans
from collectives.execution.operations import OPERATIONS
from collectives.execution.plans import Plan, SchedulePlan, divide, kept, part_of
from collectives.progress import PROGRESS
from collectives.schedules.algorithms import make_schedule


class Request:
    """Complete from its third test on."""

    tests = waits = 0

    def Test(self) -> bool:
        self.tests += 1
        return self.tests > 2

    def Wait(self) -> None:
        self.waits, self.tests = self.waits + 1, 2


class Stepping(Plan):
    """Waits for two requests."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.seen: list[str] = []

    def steps(self, wait: bool) -> Iterator[Any]:
        for _ in range(2):
            self.requests.append(Request())
            yield self.requests[-1]
        self.seen.append(f"end, waited {wait}")

    def mark(self) -> None:
        self.seen.append("mark")

    def follow(self) -> None:
        self.seen.append("follow")


def test_a_run_waits_for_each_request_between_mark_and_follow() -> None:
    plan = Stepping()
    plan.run()
    assert plan.seen == ["mark", "end, waited True", "follow"] and [one.waits for one in plan.requests] == [1, 1]


def test_an_advance_goes_on_until_it_must_wait() -> None:
    plan = Stepping()
    plan.start()
    assert plan.is_under_way and plan.taken == 1 and PROGRESS.is_busy
    assert not plan.progress()  # its second test of the first request
    assert plan.progress() and plan.taken == 2
    for do in (plan.start, lambda: plan.bind(np.empty(0), None)):
        with pytest.raises(ArgumentError, match="a plan that is under way; finish it first"):
            do()
    plan.finish()
    assert not plan.is_under_way and plan.taken == 3 and not PROGRESS.is_busy and not plan.line.plans
    assert plan.seen == ["mark", "end, waited False", "follow"]


def test_a_plan_waits_for_those_that_were_started_before_it() -> None:
    first, second = Stepping(), Stepping()
    second.line = first.line
    first.start()
    second.start()
    assert not second.requests and not second.advance()
    second.finish()
    assert not first.is_under_way and first.seen[-1].startswith("end")


def test_an_error_ends_the_plan_s_turn() -> None:
    class Fails(Stepping):
        def steps(self, wait: bool) -> Iterator[Any]:
            yield Request()
            raise KeyError("bad")

    plan = Fails()
    plan.start()
    with pytest.raises(KeyError, match="bad"):
        plan.finish()
    assert not plan.line.plans


def test_a_plan_that_a_loss_has_broken_off_waits_for_its_messages_and_fails() -> None:
    plan = Stepping()
    plan.start()
    plan.drain()
    assert plan.requests[0].waits == 1 and not plan.is_under_way
    with pytest.raises(RankLostError, match="this plan's communicator was revoked"):
        plan.finish()


def test_arrays_are_kept_for_eight_calls_or_a_gibibyte() -> None:
    assert [kept(nbytes) for nbytes in (0, 1, 1 << 27, 1 << 28, 1 << 31)] == [8, 8, 8, 4, 1]


def test_a_schedules_plan_keeps_the_executions_of_its_last_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "KEPT", 2)
    plan = SchedulePlan(make_schedule("allreduce", "ring", 1, 3), MPI.COMM_SELF, OPERATIONS["sum"])
    arrays, found = [np.full(3, float(k)) for k in range(3)], []
    for k in (0, 1, 0, 2, 0, 1):
        plan.bind(arrays[k], arrays[k])
        found.append(plan._execution)
    assert found[0] is found[2] is found[4] and found[1] is not found[5] and len(plan._executions) == 2


@pytest.mark.parametrize("op", ["sum", "mean", None])
def test_a_vector_alone_is_copied_to_its_result(op: str | None) -> None:
    schedule = make_schedule("allreduce" if op else "bcast", "chain", 1, 3)
    plan = SchedulePlan(schedule, MPI.COMM_SELF, op and OPERATIONS[op])  # type: ignore[arg-type]
    send, recv = np.arange(3.0), np.zeros(3)
    plan.bind(send, recv)
    plan.run()
    assert recv.tolist() == [0, 1, 2]
    assert (plan._vectors(send, None)[1] is send) == (op is None)  # a broadcast has one array


def test_parts_and_means() -> None:
    vector = np.arange(6, dtype=np.float16)
    assert part_of(vector, 2, 4).tolist() == [2, 3] and part_of(vector[2:4], 2, 4).tolist() == [2, 3]
    divide(vector, 3)
    np.testing.assert_array_equal(vector, (np.arange(6, dtype=np.float32) / 3).astype(np.float16))
