"""Cost: what a schedule demands of ranks and links, counted on its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from collectives.execution.execute import InFlight
from collectives.schedules.schedule import Schedule, StepKind
from collectives.simulation.events import Message, simulate

Pair = tuple[int, int]  # source, destination


@dataclass(frozen=True)
class Cost:
    """Rounds, and the messages and elements of each link (source, destination).

    A round is the time of one message; in it a rank sends at most one message and receives at most one.
    """

    rounds: int
    messages: Counter[Pair]
    elements: Counter[Pair]

    def sent(self, rank: int) -> tuple[int, int]:
        """Return how many messages and elements `rank` sends."""
        return self._sum(rank, 0)

    def received(self, rank: int) -> tuple[int, int]:
        """Return how many messages and elements `rank` receives."""
        return self._sum(rank, 1)

    def _sum(self, rank: int, end: int) -> tuple[int, int]:
        """Return the messages and elements of the links with `rank` at `end`."""
        links = [link for link in self.messages if link[end] == rank]
        return sum(self.messages[link] for link in links), sum(self.elements[link] for link in links)

    def __str__(self) -> str:
        """Return the totals in one line."""
        total, elements = self.messages.total(), self.elements.total()
        busiest = max(self.elements.values(), default=0)
        return f"{self.rounds} rounds, {total} messages, {elements} elements, at most {busiest} over one link"


def count(schedule: Schedule, in_flight: InFlight | None = None) -> Cost:
    """Return the cost of `schedule`; the rounds are those of an executor with the limits `in_flight`."""
    messages: Counter[Pair] = Counter()
    elements: Counter[Pair] = Counter()
    for rank in range(schedule.size):
        for step in schedule.rank(rank):
            if step.kind is StepKind.SEND:
                messages[rank, step.peer] += 1
                elements[rank, step.peer] += step.stop - step.start
    return Cost(round(simulate(schedule, in_flight or InFlight(), RoundNetwork(schedule.size))), messages, elements)


class RoundNetwork:
    """A network on which each message takes one round."""

    def __init__(self, size: int) -> None:
        self._sending, self._receiving = [0.0] * size, [0.0] * size

    def add(self, rank: int, elements: int) -> float:
        """Return 0: additions take no time."""
        return 0.0

    def transfer(self, messages: Sequence[Message], now: float) -> list[tuple[float, Message]]:
        """Start the messages whose ranks are free; return the others with the round in which they may start."""
        waiting = []
        for message in messages:
            free = max(self._sending[message.source], self._receiving[message.dest])
            if free > now:
                waiting.append((free, message))
            else:
                self._sending[message.source] = self._receiving[message.dest] = message.done = now + 1
        return waiting
