"""Iteration: what a simulation of an iteration gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from collectives.schedules.algorithms import Choice
from scaffe.monitor.spans import Span
from scaffe.parallel.run import Run


@dataclass(frozen=True)
class Messages:
    """Seconds of one kind of messages in an iteration: means over the ranks, and the worst rank's exposed ones.

    `busy`: at least one was in flight; `exposed`: computation waited for it.
    """

    busy: float
    exposed: float
    worst: float

    @property
    def hidden(self) -> float:
        """Seconds in which messages were in flight and computation did not wait."""
        return max(0.0, self.busy - self.exposed)


@dataclass(frozen=True)
class Iteration:
    """A simulated iteration, in the steady state.

    - `seconds`: its length; `forward`, `backward`: of a rank's passes; `update`: of all parameters.
    - `batch`: images of each rank; `nbytes`: of all parameters; `buckets`: bytes by bucket.
    - `chosen`: the algorithm of each collective, by (name, bytes).
    - `spans`: of each rank whose timeline was asked for.
    """

    run: Run
    cluster: str
    ranks: int
    batch: int
    seconds: float
    forward: float
    backward: float
    update: float
    propagation: Messages
    aggregation: Messages
    nbytes: int
    buckets: Mapping[str, int]
    chosen: Mapping[tuple[str, int], Choice]
    spans: Mapping[int, Sequence[Span]] = field(default_factory=dict, repr=False)

    @property
    def computing(self) -> float:
        """Seconds of both passes and the update: an iteration of a single rank."""
        return self.forward + self.backward + self.update

    @property
    def rate(self) -> float:
        """Images a second of all ranks."""
        return self.ranks * self.batch / self.seconds
