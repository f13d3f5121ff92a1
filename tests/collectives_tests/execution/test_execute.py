"""The executor that runs is the one that is proved: `check` tells of each change that makes it wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mutants import changed

from collectives.errors import ScheduleError
from collectives.execution import execute
from collectives.execution.execute import Execution, InFlight
from collectives.execution.operations import Operation
from collectives.execution.transport import HostTransport
from collectives.schedules.algorithms import make_schedule
from collectives.schedules.schedule import Schedule
from collectives.simulation import check as checking
from collectives.simulation.adversary import EagerDelivery, LazyDelivery, Network, SimulatedRequest

PROVED = [
    make_schedule("reduce", "chain", 4, 24, chunk=2, depth=2),
    make_schedule("reduce", "binomial", 8, 24, chunk=2, depth=2),
    make_schedule("allreduce", "two-tree", 5, 24, chunk=2, depth=2),
    make_schedule("allreduce", "ring", 4, 24, chunk=3, depth=2),
    make_schedule("allreduce", "halving", 5, 24, chunk=3, depth=2),
    make_schedule("bcast", "chain", 4, 24, chunk=2),
]

# What to change in execute.py, into what, and what `check` then says of some schedule.
MUTATIONS = [
    ("self._sends[0] <= step.after or ", "", "wrote to what it was sending"),
    ("self._sends[0] <= step.after", "self._sends[0] < step.after", "wrote to what it was sending"),
    (" or not self._has_sent(self.steps[i].after)", "", "wrote to what it was sending"),
    ("self.steps[i].after >= at or ", "", "nothing that was ever written|wrote to what it was sending"),
    ("self.steps[i].after >= at", "self.steps[i].after > at", "nothing that was ever written|wrote to what"),
    ("self._received + self._ahead", "self._received + self._ahead + 1", "5 receives"),
    ("len(self._sends) >= self._sends_in_flight", "len(self._sends) > self._sends_in_flight", "5 sends"),
    ("if not self._requests[self._sends[0]].Test():", "if False:", "wrote to what|5 sends"),
    ("transport.land(message)", "pass", "nothing that was ever written|in another order"),
    ("                yield self._requests[i]", "                pass", "ends with"),
    ("self._work[i][0], step.peer, step.tag)", "self._work[i][0], step.peer, 1 - step.tag)", "wait forever"),
    ("message, step.peer, step.tag, i in", "message, step.peer, 0, i in", "wait forever"),
    ("message, (self._view(step.target, step)", "message, (moved", "result"),
    ("yield self._requests.pop(i)\n", "self._requests.pop(i)\n", "nothing that was ever written|5 receives"),
]  # fmt: skip


def prove(executor: type[Execution], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "Execution", executor)
    for schedule in PROVED:
        checking.check(schedule)


@pytest.mark.parametrize(("old", "new", "message"), MUTATIONS)
def test_check_tells_of_an_executor_that_is_wrong(
    monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    prove(Execution, monkeypatch)
    with pytest.raises(ScheduleError, match=message):
        prove(changed(execute, old, new)["Execution"], monkeypatch)


def run(schedule: Schedule, op: Operation, contributions: np.ndarray, network: Network) -> list[np.ndarray]:
    """Return what all ranks have after an execution over arrays of the processor."""
    outs = [np.zeros_like(own) for own in contributions]
    network.run(
        [
            Execution(schedule, network.comm(r), op, own, out, HostTransport(), network.in_flight).run()  # type: ignore
            for r, (own, out) in enumerate(zip(contributions, outs, strict=True))
        ]
    )
    return outs


@pytest.mark.parametrize("order", [LazyDelivery(), EagerDelivery()])
def test_what_arrives_is_joined_to_what_stands_there(order: LazyDelivery) -> None:
    """A difference says which operand is which: along a chain each rank takes what comes off its own."""
    own = np.random.default_rng(0).standard_normal((4, 10))
    difference = Operation("difference", np.subtract)
    schedule = make_schedule("reduce", "chain", 4, 10, chunk=3)
    result = run(schedule, difference, own, Network(4, order))[0]
    np.testing.assert_array_equal(result, own[0] - (own[1] - (own[2] - own[3])))


@pytest.mark.parametrize("in_flight", [InFlight(1, 1), InFlight(2, 3), InFlight(4, 4), InFlight(7, 5)])
def test_a_window_is_filled_and_not_exceeded(in_flight: InFlight) -> None:
    own = np.ones((3, 40))
    network = Network(3, LazyDelivery(), in_flight)
    total = run(make_schedule("reduce", "chain", 3, 40, chunk=1, depth=20), Operation("sum", np.add), own, network)[0]
    assert (total == 3).all()
    assert network.most == [in_flight.receives, in_flight.sends]


def test_without_a_window_it_is_told_by_the_length_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "IN_FLIGHT", 48)
    monkeypatch.setattr(execute, "MOST_SENDS", 5)
    for chunk, sends in ((1, 5), (2, 3), (3, 2), (30, 2)):
        network = Network(3, LazyDelivery())
        schedule = make_schedule("reduce", "chain", 3, 120, chunk=chunk, depth=20)
        run(schedule, Operation("sum", np.add), np.ones((3, 120)), network)
        assert network.most == [min(execute.AHEAD, 120 // chunk), sends]


class Buffered(LazyDelivery):
    """Sends that need not tell of their arrival are complete at once, and move late all the same."""

    def reports(self) -> bool:
        return True

    def buffers(self) -> bool:
        return True


class Counting(Network):
    """Counts the messages that have been sent and have not moved."""

    most_behind = 0

    def send(self, channel: Any, elements: np.ndarray, synchronous: bool) -> SimulatedRequest:
        end = super().send(channel, elements, synchronous)
        self.most_behind = max(self.most_behind, len(self._movable) + sum(map(len, self._sends.values())))
        return end


@pytest.mark.parametrize("sends", [1, 2, 4, 7])
def test_a_fast_rank_does_not_fill_the_memory_of_mpi(sends: int) -> None:
    network = Counting(2, Buffered(), InFlight(1, sends))
    run(make_schedule("reduce", "chain", 2, 100, chunk=1), Operation("sum", np.add), np.ones((2, 100)), network)
    assert network.most_behind <= sends + max(1, sends // 2)


def test_an_execution_over_other_arrays_leaves_the_first_ones_alone() -> None:
    network, schedule = Network(3, EagerDelivery()), make_schedule("allreduce", "chain", 3, 10, chunk=3)
    own, out = np.random.default_rng(0).integers(0, 99, (2, 3, 10)), np.zeros((2, 3, 10), int)
    total = Operation("sum", np.add)
    first = [Execution(schedule, network.comm(r), total, own[0, r], out[0, r]) for r in range(3)]  # type: ignore[arg-type]
    other = [one.over(own[1, r], out[1, r]) for r, one in enumerate(first)]
    for k, executions in ((1, other), (0, first)):
        network.run([one.run() for one in executions])
        assert (out[k] == own[k].sum(0)).all() and out[0].any() == (k == 0)
