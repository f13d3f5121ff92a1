"""Measured: what all ranks measured in an interval, as samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from scaffe.monitor import numbers, waited
from scaffe.monitor.numbers import Sample
from scaffe.monitor.spans import MESSAGES
from scaffe.net.net import Net
from scaffe.parallel.meter import hidden_share
from scaffe.parallel.workflows.workflow import Workflow
from scaffe.training.losses import Losses

LARGEST = 100  # values of an output; a larger one, such as a blob of features, is no curve


class Interval(NamedTuple):
    """What a rank measured in an interval, seconds.

    `exposed` and `busy` are those of the meters of MESSAGES, `waited` the wait for other ranks' losses, `reading` the
    wait for records, None without a data layer.
    """

    seconds: float
    exposed: tuple[float, ...]
    busy: tuple[float, ...]
    waited: float
    reading: float | None

    @property
    def work(self) -> float:
        """Seconds in which the rank waited neither for messages nor for other ranks' losses."""
        return self.seconds - sum(self.exposed) - self.waited


class Counters:
    """The sums that a rank's objects keep of their waits. `since()` returns what was added since its last call.

    The objects are replaced when the number of instances changes; new ones count from 0.
    """

    def __init__(self) -> None:
        self._last: WeakKeyDictionary[Any, np.ndarray] = WeakKeyDictionary()

    def since(self, workflows: Sequence[Workflow], losses: Losses, nets: Sequence[Net], seconds: float) -> Interval:
        """Return what was added, `seconds` being the time of training."""
        meters = zip(*((one.propagate.meter, one.aggregate.meter) for one in workflows), strict=True)
        messages = [sum(self._added(m, m.exposed, m.busy) for m in kind) for kind in meters]
        reading = [float(self._added(net, waited.of_net(net).seconds)[0]) for net in nets]
        return Interval(
            seconds,
            tuple(float(exposed) for exposed, _ in messages),  # type: ignore[misc]
            tuple(float(busy) for _, busy in messages),  # type: ignore[misc]
            float(self._added(losses, losses.waited)[0]),
            sum(reading) / len(reading) if any(net.data_layers() for net in nets) else None,
        )

    def _added(self, counter: Any, *values: float) -> np.ndarray:
        now = np.array(values)
        before = self._last.get(counter, 0.0)
        self._last[counter] = now
        return np.asarray(now - before)


def of_outputs(metric: numbers.Metric, outputs: Mapping[str, np.ndarray], **labels: str) -> Iterator[Sample]:
    """Iterate over a net's outputs; one of several values has a number in brackets."""
    for name, values in outputs.items():
        flat = np.asarray(values).reshape(-1)
        for k, value in enumerate(flat if flat.size <= LARGEST else ()):
            yield Sample(metric, float(value), {"output": name if flat.size == 1 else f"{name}[{k}]", **labels})


def of_norms(gradients: Mapping[str, float], updates: Mapping[str, float]) -> Iterator[Sample]:
    """Iterate over the norms of each layer."""
    for metric, norms in ((numbers.GRADIENT, gradients), (numbers.UPDATE, updates)):
        yield from (Sample(metric, norm, {"layer": layer}) for layer, norm in norms.items())


def of_speed(seconds: float, iterations: int, images: int) -> Iterator[Sample]:
    """Iterate over the speed of so many iterations, which trained on so many samples."""
    yield Sample(numbers.SECONDS, seconds / iterations)
    if images:
        yield Sample(numbers.SPEED, images / max(seconds, 1e-9))


def of_ranks(ranks: Sequence[Interval], iterations: int) -> Iterator[Sample]:
    """Iterate over the waits of all ranks in so many iterations."""
    yield from _reading(ranks)
    if len(ranks) == 1:
        return
    work = [one.work / iterations for one in ranks]
    slowest = max(range(len(ranks)), key=lambda rank: work[rank])
    yield Sample(numbers.SLOWEST, slowest)
    yield Sample(numbers.SLOWEST_WORK, work[slowest])
    yield Sample(numbers.MEAN_WORK, sum(work) / len(work))
    yield from _by_rank(numbers.RANK_WORK, work)
    for k, kind in enumerate(MESSAGES):
        yield from _communication(kind, [(one.exposed[k], one.busy[k]) for one in ranks], iterations)


def _by_rank(metric: numbers.Metric, values: Iterable[float], **labels: str) -> Iterator[Sample]:
    for rank, value in enumerate(values):
        yield Sample(metric, value, {**labels, "rank": str(rank)})


def _communication(kind: str, seconds: Sequence[tuple[float, float]], iterations: int) -> Iterator[Sample]:
    busy = sum(busy for _, busy in seconds)
    if not busy:
        return
    # A wait can exceed the busy time, since it handles the other kind's messages too: count no more than that.
    hidden = hidden_share(sum(min(pair) for pair in seconds), busy)
    yield Sample(numbers.HIDDEN, hidden, {"kind": kind})
    yield Sample(numbers.EXPOSED, 1 - hidden, {"kind": kind})
    yield from _by_rank(numbers.RANK_EXPOSED, (exposed / iterations for exposed, _ in seconds), kind=kind)


def _reading(ranks: Sequence[Interval]) -> Iterator[Sample]:
    shares = [(one.reading or 0.0) / max(one.seconds, 1e-9) for one in ranks]
    if all(one.reading is None for one in ranks):
        return
    yield Sample(numbers.READING, sum(shares) / len(shares))
    yield Sample(numbers.WORST_READING, max(shares))
    yield from _by_rank(numbers.RANK_READING, shares)
