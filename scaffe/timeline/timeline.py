"""Timeline: when each thread of a rank computed layers, read, exchanged messages, updated and waited.

A run without a timeline has no cost: a timeline wraps methods of what it observes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import current_thread
from time import perf_counter
from typing import Any

from scaffe.monitor.spans import (
    BACKWARD,
    BETWEEN,
    FORWARD,
    GATHER,
    INSTANCE,
    INSTANCES,
    ITERATION,
    LOSS,
    MESSAGES,
    READ,
    STATISTICS,
    TRANSFORM,
    UPDATE,
    WAIT,
    Span,
)
from scaffe.net.net import Net
from scaffe.parallel.instances.gathers.gather import Addition
from scaffe.parallel.instances.team import Team
from scaffe.parallel.meter import HANDLING
from scaffe.parallel.statistics import Statistics
from scaffe.parallel.workflows.workflow import Workflow

LIMIT = 50_000  # spans that a rank keeps for each of its instances
TOTAL = 1_000_000  # spans that all ranks keep together, some 130 MB in a file


class Timeline:
    """Keep the last `limit` spans of this rank."""

    def __init__(self, limit: int = LIMIT):
        # Plain tuples (kind, number, begin, end, track, awaited), since several are made in every layer.
        self._spans: deque[tuple[str, int, float, float, str, str]] = deque(maxlen=limit)
        self._layers: list[str] = []
        self._buckets: list[str] = []

    def watch(self, nets: Sequence[Net], workflow: Workflow, statistics: Statistics, team: Team) -> None:
        """Record the spans of these objects from now on; `nets` are those of the team's instances.

        Spans of others are dropped: their buckets are others.
        """
        self._spans.clear()
        self._layers = [layer.label for layer in nets[0].layers]
        self._buckets = [bucket.label(nets[0]) for bucket in workflow.aggregate.buckets]
        for instance, net in enumerate(nets):
            self._watch_net(net, f"{INSTANCE}{instance}, " if team.crew else "")
        measured: Any = statistics
        measured.average = self.timed(WAIT, 0, statistics.average, STATISTICS)
        waiting: Any = team
        waiting.waiting = self._watch_waiting(team.waiting)
        self.follow(workflow)

    def _watch_net(self, net: Net, who: str) -> None:
        """Record the spans of a net; its readers' tracks begin with `who`."""
        owner: Any = net  # its methods are replaced by timed ones
        if net.context.scatter:
            owner.feed_layer = self._watch_reading(net, net.feed_layer, who)
        owner.forward_layer = self._watch_forward(net, who)
        owner.backward_layer = self._watch_backward(net)

    def timed(self, kind: str, number: int, work: Callable[..., Any], awaited: str = "") -> Callable[..., Any]:
        """Return a function that calls `work` and records a span of it.

        `number` is the index of an iteration, a layer or a bucket, as `kind` requires.
        """

        def timed(*arguments: object) -> Any:
            begin = perf_counter()
            result = work(*arguments)
            self._spans.append((kind, number, begin, perf_counter(), current_thread().name, awaited))
            return result

        return timed

    def follow(self, workflow: Workflow) -> None:
        """Record the spans of a workflow's messages, and of its additions of instances' gradients, too."""
        workflow.propagate.meter.note = workflow.aggregate.meter.note = self._note
        if workflow.instance_sums is not None:
            sums: Any = workflow.instance_sums.sums
            sums.add = self._watch_adding(sums.add)

    def _watch_adding(self, add: Callable[[Addition], None]) -> Callable[[Addition], None]:
        def timed(addition: Addition) -> None:
            begin = perf_counter()
            add(addition)
            self._spans.append((GATHER, addition.bucket, begin, perf_counter(), current_thread().name, ""))

        return timed

    def _watch_waiting(
        self, waiting: Callable[[], AbstractContextManager[object]]
    ) -> Callable[[], AbstractContextManager[object]]:
        @contextmanager
        def timed() -> Iterator[None]:
            begin = perf_counter()
            with waiting():
                yield
            self._spans.append((WAIT, 0, begin, perf_counter(), current_thread().name, INSTANCES))

        return timed

    def _watch_forward(self, net: Net, who: str) -> Callable[[int], None]:
        forward, add = net.forward_layer, self._spans.append
        read = self._watch_reading(net, forward, who)
        readers = {i for i, layer in enumerate(net.layers) if layer.reads_ahead and not net.context.scatter}

        def timed(i: int) -> None:
            if i in readers:
                return read(i)
            begin = perf_counter()
            forward(i)
            add((FORWARD, i, begin, perf_counter(), current_thread().name, ""))

        return timed

    def _watch_reading(self, net: Net, take: Callable[[int], None], who: str) -> Callable[[int], None]:
        """Return `take`, which gets layer i's next batch, recorded as a wait for records."""

        def timed(i: int) -> None:
            begin = perf_counter()
            take(i)
            self._spans.append((WAIT, i, begin, perf_counter(), current_thread().name, READ))
            self._note_batch(i, net.layers[i], who)

        return timed

    def _watch_backward(self, net: Net) -> Callable[[int], None]:
        backward, add = net.backward_layer, self._spans.append
        needed = [node.backward for node in net.nodes]

        def timed(i: int) -> None:
            begin = perf_counter()
            backward(i)
            if needed[i]:
                add((BACKWARD, i, begin, perf_counter(), current_thread().name, ""))

        return timed

    def _note_batch(self, i: int, layer: Any, who: str) -> None:
        begin, middle, end = layer.batch.seconds
        track = f"{who}reader {layer.label}" + (f", thread {layer.batch.thread}" if layer.batch.thread else "")
        self._spans.append((READ, i, begin, middle or end, track, ""))
        if middle:
            self._spans.append((TRANSFORM, i, middle, end, track, ""))

    def _note(self, kind: str, bucket: int, begin: float, end: float, lane: int | None) -> None:
        """Record a message, a wait or an update that a meter has measured."""
        if lane is not None:
            self._spans.append((kind, bucket, begin, end, f"{kind}, lane {lane}", ""))
        elif kind == UPDATE:
            self._spans.append((UPDATE, bucket, begin, end, current_thread().name, ""))
        else:
            self._spans.append((WAIT, bucket, begin, end, current_thread().name, kind))

    def spans(self) -> list[Span]:
        """Return the spans of all iterations that are kept whole, and of the messages and batches around them."""
        whole = self._whole_iterations()
        if not whole:
            return []
        first, last, begins = whole[0][0], whole[-1][1], [begin for begin, _ in whole]
        kept = []
        for kind, number, begin, end, track, awaited in self._spans:
            if kind in (READ, TRANSFORM, *MESSAGES):
                inside = begin < last and end > first
            else:
                k = bisect_right(begins, begin) - 1
                inside = k >= 0 and end <= whole[k][1]
            if inside:
                kept.append(Span(kind, self._name(kind, number, awaited), begin, end, track, awaited))
        return kept

    def _whole_iterations(self) -> Sequence[tuple[float, float]]:
        """Return begin and end of the iterations of which no span has been dropped."""
        full = len(self._spans) == self._spans.maxlen
        since = self._spans[0][3] if full else 0.0  # spans that ended before may have been dropped
        return [(begin, end) for kind, _, begin, end, *_ in self._spans if kind == ITERATION and begin >= since]

    def _name(self, kind: str, number: int, awaited: str) -> str:
        if kind in (UPDATE, GATHER, *MESSAGES) or awaited in MESSAGES:
            return self._buckets[number] if number >= 0 else BETWEEN if number == HANDLING else "all"
        if kind == ITERATION:
            return f"iteration {number}"
        return awaited if awaited in (LOSS, STATISTICS, INSTANCES) else self._layers[number]


def limit(ranks: int, instances: int = 1) -> int:
    """Return the number of spans that each of `ranks` ranks with so many `instances` may keep."""
    return min(LIMIT * instances, TOTAL // ranks)
