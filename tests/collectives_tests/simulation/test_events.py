"""Executions as events, on a network whose times are given by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from collectives.errors import ScheduleError
from collectives.execution.execute import InFlight
from collectives.schedules.algorithms import make_schedule
from collectives.schedules.schedule import Step, StepKind
from collectives.simulation.events import Lengths, Message, Slots, simulate


class Slow:
    """A network on which a message takes 10 s, also several at a time, and an addition 1 s an element."""

    def __init__(self, busy_until: float = 0.0):
        self.busy_until, self.asked = busy_until, 0

    def transfer(self, messages: Sequence[Message], now: float) -> list[tuple[float, Message]]:
        self.asked += 1
        if now < self.busy_until:
            return [(self.busy_until, message) for message in messages]
        for message in messages:
            message.done = now + 10
        return []

    def add(self, rank: int, elements: int) -> float:
        return float(elements)


def test_a_rank_adds_after_a_message_has_come_and_sends_after_that() -> None:
    assert simulate(make_schedule("reduce", "chain", 2, 4, chunk=4), InFlight(), Slow()) == 10 + 4
    assert simulate(make_schedule("reduce", "chain", 3, 4, chunk=4), InFlight(), Slow()) == 2 * (10 + 4)
    assert simulate(make_schedule("bcast", "chain", 3, 4, chunk=4), InFlight(), Slow()) == 2 * 10


def test_chunks_come_while_others_are_added() -> None:
    """All four come at once, as their receives are posted ahead; with one ahead each waits for the addition before."""
    schedule = make_schedule("reduce", "chain", 2, 16, chunk=4)
    assert simulate(schedule, InFlight(4, 4), Slow()) == 10 + 4 * 4
    assert simulate(schedule, InFlight(1, 4), Slow()) == 4 * (10 + 4)


def test_a_message_waits_for_the_network() -> None:
    network = Slow(busy_until=5)
    assert simulate(make_schedule("reduce", "chain", 2, 4, chunk=4), InFlight(), network) == 5 + 10 + 4
    assert network.asked == 2


def test_a_receive_without_its_send_waits_forever() -> None:
    class Alone:
        def of(self, rank: int) -> list[Step]:
            return [Step(StepKind.RECV, 1, 0, 0, 4)] if rank == 0 else []

    schedule = replace(make_schedule("bcast", "chain", 2, 4), steps=Alone())
    with pytest.raises(ScheduleError, match="1 ranks wait forever"):
        simulate(schedule, InFlight(), Slow())


def test_arrays_without_data_have_lengths() -> None:
    assert Lengths()[3:8] == 5 and Slots()[2, :7] == 7
    message = Message(0, 1, 4)
    assert not message.Test()
    with pytest.raises(NotImplementedError):
        message.Wait()
