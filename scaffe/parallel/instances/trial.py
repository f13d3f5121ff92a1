"""InstancesTrial: what Instances leave to "auto", timed in the first iterations of training."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from scaffe.parallel.instances.instances import AUTO, Instances

SPREADS = (1 / 16, 1 / 8, 1 / 4)  # of an iteration, until the last launch group starts
Timing = Generator[None, float, float]


class InstancesTrial:
    """Time the number of instances, then the gather, then the launch delay, where they are "auto"; take the fastest.

    `present` are the instances of the next iteration, without "auto". They change only where `took` returns. Each value
    has ITERATIONS iterations, of which the first is not counted, since it allocates memory. Its time is their median,
    and an iteration's time that of its slowest rank.

    `counts` maps each number to try to the instances of each rank, `gathers` names the gathers to try. `gather(values)`
    returns all ranks' values, so that all take the same. Every rank calls `took` after each iteration.
    """

    ITERATIONS = 6

    def __init__(
        self,
        given: Instances,
        counts: Mapping[str, Sequence[int]],
        gathers: Sequence[str],
        gather: Callable[[list[float]], list[list[float]]],
    ):
        self.given, self.present = given, without_auto(given)
        self._counts, self._gathers, self._gather = counts, gathers, gather
        self._said: list[str] = []
        self._run = self._trial()
        self.is_over = not any(True for _ in islice(self._run, 1))  # whether there is nothing to time

    def took(self, seconds: float) -> str:
        """Record an iteration's time on this rank. Collective.

        After the last iteration of the trial return what was taken, with all times, in a sentence; else "".
        """
        if self.is_over:
            return ""
        try:
            self._run.send(seconds)
        except StopIteration:
            self.is_over = True
            times = "; ".join(self._said)
            return f"Instances: {self._taken()}, the fastest in the first iterations ({times}, on the slowest rank)"
        return ""

    def _trial(self) -> Generator[None, float, None]:
        """Change `present` from iteration to iteration; each gets the seconds of its iteration."""
        if self.given.n == AUTO and len(self._counts) > 1:
            yield from self._choose("n", self._counts, {})
        most = max(self._counts[self.present.n])
        if most == 1:
            return
        if self.given.gather == AUTO and len(self._gathers) > 1:
            yield from self._choose("gather", self._gathers, {})
        groups = min(most, self.given.launch_groups)
        if self.given.launch_delay == AUTO and groups > 1:
            undelayed = yield from self._time()
            delays = [f"{undelayed * spread / (groups - 1):.3g}" for spread in SPREADS]
            yield from self._choose("launch_delay", delays, {"0": undelayed})

    def _choose(self, field: str, values: Iterable[str], seconds: dict[str, float]) -> Generator[None, float, None]:
        """Time a field's values, and take that with the least of all `seconds`."""
        for value in values:
            self.present = with_value(self.present, field, value)
            seconds[value] = yield from self._time()
        best = min(seconds, key=lambda value: seconds[value])
        self.present = with_value(self.present, field, best)
        times = ", ".join(f"{self._named(field, value)}: {1e3 * t:.4g} ms" for value, t in seconds.items())
        self._said.append(times)

    def _time(self) -> Timing:
        """Return the seconds of an iteration of the present instances, the same on all ranks."""
        mine = []
        for _ in range(self.ITERATIONS):
            mine.append((yield))
        return float(np.median(np.max(self._gather(mine[1:]), axis=0)))

    def _taken(self) -> str:
        """Return what was taken, with what follows from it."""
        present = self.present
        if max(self._counts[present.n]) == 1:
            return present.n
        delay = [self._named("launch_delay", present.launch_delay)] if present.launch_groups > 1 else []
        return ", ".join([self._named("n", present.n), self._named("gather", present.gather), *delay])

    def _named(self, field: str, value: str) -> str:
        """Return a value as the log names it."""
        if field == "gather":
            return f"gather {value}"
        if field == "launch_delay":
            return f"launch delay {value} s"
        least, most = min(self._counts[value]), max(self._counts[value])
        number = str(most) if least == most else f"{least} to {most}"
        return number if number == value else f"{number} ({value})"


def without_auto(given: Instances) -> Instances:
    """Return the instances that a trial starts with: one, whose gradients need no gather, launched without delay."""
    for field, value in (("n", "1"), ("gather", "slices"), ("launch_delay", "0")):
        if getattr(given, field) == AUTO:
            given = with_value(given, field, value)
    return given


def with_value(instances: Instances, field: str, value: str) -> Instances:
    """Return the instances with another value of a field."""
    changed: dict[str, Any] = {field: value}
    return replace(instances, **changed)
