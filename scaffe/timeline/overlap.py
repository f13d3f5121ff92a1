"""Summary of a trace: how long each phase takes, and how long computation waits for communication."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from scaffe.errors import TimelineError
from scaffe.monitor.spans import (
    AGGREGATION,
    BACKWARD,
    FORWARD,
    GATHER,
    INSTANCES,
    ITERATION,
    LOSS,
    MESSAGES,
    PROPAGATION,
    READ,
    TRANSFORM,
    UPDATE,
    WAIT,
    Span,
    instance_of,
)
from scaffe.timeline.trace import RankTrace, Trace

PHASES = READ, TRANSFORM, FORWARD, PROPAGATION, BACKWARD, GATHER, AGGREGATION, UPDATE
OVERLAPPED = READ, TRANSFORM, PROPAGATION, AGGREGATION  # phases that run beside computation

Interval = tuple[float, float]


# Intervals: lists of (begin, end).


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the times that any of the intervals covers, disjoint and in order."""
    joined: list[Interval] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return joined


def length(intervals: Iterable[Interval]) -> float:
    """Return the seconds that disjoint intervals cover."""
    return sum(end - begin for begin, end in intervals)


def intersection(some: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """Return the times that both `some` and `others` cover, disjoint and in order."""
    some, others = union(some), union(others)
    both: list[Interval] = []
    i = k = 0
    while i < len(some) and k < len(others):
        begin, end = max(some[i][0], others[k][0]), min(some[i][1], others[k][1])
        if begin < end:
            both.append((begin, end))
        if some[i][1] < others[k][1]:
            i += 1
        else:
            k += 1
    return both


# Iterations.


@dataclass
class IterationTimes:
    """Seconds of one rank in one iteration; where it has several instances, means over these."""

    total: float
    busy: dict[str, float]  # by phase
    exposed: dict[str, float]  # by phase of OVERLAPPED: computation waited for it
    waits: dict[tuple[str, str], float]  # by (kind, bucket)
    loss: float  # waiting for all ranks' losses
    instances: float  # waiting for other instances of the rank

    @property
    def own(self) -> float:
        """Seconds that do not depend on the other ranks: computing, and waiting for records."""
        return self.busy[FORWARD] + self.busy[BACKWARD] + self.exposed[READ] + self.exposed[TRANSFORM]


def iterations(rank: RankTrace) -> dict[str, IterationTimes]:
    """Return the times of each of a rank's iterations, by the iterations' names."""
    windows = sorted((span for span in rank.spans if span.kind == ITERATION), key=lambda span: span.begin)
    begins = [window.begin for window in windows]
    inside: list[list[Span]] = [[] for _ in windows]
    for span in rank.spans:
        first = max(0, bisect_right(begins, span.begin) - 1)
        for k in range(first, bisect_right(begins, span.end)):
            inside[k].append(span)
    return {
        window.name: _mean([_times(window, seen) for seen in _views(spans)])
        for window, spans in zip(windows, inside, strict=True)
    }


def _views(spans: Sequence[Span]) -> list[list[Span]]:
    """Return the spans of a rank as each of its instances has them: without those of the others' tracks."""
    by_instance: defaultdict[int | None, list[Span]] = defaultdict(list)
    for span in spans:
        by_instance[instance_of(span.track)].append(span)
    shared = by_instance.pop(None, [])
    return [[*shared, *own] for own in by_instance.values()] or [shared]


def _mean(times: Sequence[IterationTimes]) -> IterationTimes:
    """Return the means of the instances' times."""
    keys = {key for one in times for key in one.waits}
    return IterationTimes(
        total=times[0].total,
        busy={kind: fmean(one.busy[kind] for one in times) for kind in PHASES},
        exposed={kind: fmean(one.exposed[kind] for one in times) for kind in OVERLAPPED},
        waits={key: fmean(one.waits.get(key, 0.0) for one in times) for key in keys},
        loss=fmean(one.loss for one in times),
        instances=fmean(one.instances for one in times),
    )


def _times(window: Span, spans: Sequence[Span]) -> IterationTimes:
    """Return the seconds of these spans within an iteration, the span `window`."""
    times: defaultdict[str, list[Interval]] = defaultdict(list)
    waits: defaultdict[tuple[str, str], list[Interval]] = defaultdict(list)
    for span in spans:
        begin, end = max(span.begin, window.begin), min(span.end, window.end)
        if begin < end:
            times[span.kind].append((begin, end))
            if span.kind == WAIT:
                waits[span.awaited, span.name].append((begin, end))
    awaited = {kind: [t for (what, _), ts in waits.items() if what == kind for t in ts] for kind in (READ, *MESSAGES)}
    awaited[TRANSFORM] = awaited[READ]  # a wait for records is a wait for both
    updates, computing = times[UPDATE], [*times[FORWARD], *times[BACKWARD], *times[GATHER]]
    return IterationTimes(
        total=window.end - window.begin,
        busy={kind: length(union(times[kind])) for kind in PHASES},
        exposed={kind: _exposed(awaited[kind], times[kind], updates) for kind in OVERLAPPED},
        waits={key: _exposed(ts, times[key[0]], updates) for key, ts in waits.items() if key[0] in MESSAGES},
        loss=_uncovered([t for (what, _), ts in waits.items() if what == LOSS for t in ts], computing),
        instances=sum(length(ts) for (what, _), ts in waits.items() if what == INSTANCES),
    )


def _exposed(waits: Sequence[Interval], times: Sequence[Interval], updates: Sequence[Interval]) -> float:
    """Return the seconds that waits and times have in common, without those of updates."""
    both = intersection(waits, times)
    return length(both) - length(intersection(both, updates))


def _uncovered(waits: Sequence[Interval], computing: Sequence[Interval]) -> float:
    """Return the seconds of waits in which nothing is computed: instances compute while the main thread waits."""
    return length(union(waits)) - length(intersection(waits, computing))


# Summaries.


@dataclass
class PhaseTimes:
    """Seconds of one phase in an iteration.

    `busy` is the mean, over the ranks that have this phase, of the medians over the iterations; `exposed` is the mean
    over all ranks.
    """

    busy: float
    exposed: float
    worst_rank: int
    worst_exposed: float

    @property
    def hidden(self) -> float:
        """Seconds in which the phase was busy and computation did not wait for it."""
        return max(0.0, self.busy - self.exposed)


@dataclass
class Summary:
    """Times of a trace, in seconds: medians over the iterations, and means over the ranks unless given by rank.

    Those of a rank with several instances are means over these.
    """

    trace: Trace
    names: list[str]  # of the iterations that all ranks have
    total: float
    phases: dict[str, PhaseTimes]
    own: dict[int, float]  # by rank: computing and waiting for records
    loss: float  # waiting for all ranks' losses
    instances: float  # waiting for other instances of the same rank
    waits: dict[tuple[str, str], float]  # by (kind, bucket)

    @property
    def slowest(self) -> int:
        """The rank with the largest own time."""
        return max(self.own, key=lambda rank: self.own[rank])

    @property
    def behind(self) -> float:
        """Seconds by which the slowest rank's own time exceeds the median of the others; 0 for a single rank."""
        others = [seconds for rank, seconds in self.own.items() if rank != self.slowest]
        return self.own[self.slowest] - median(others) if others else 0.0

    @property
    def lag(self) -> float:
        """The same, as a fraction of the median of the others."""
        others = self.own[self.slowest] - self.behind
        return self.behind / others if others > 0 else 0.0


Rows = Mapping[int, Sequence[IterationTimes]]  # the same iterations of all ranks, by rank


def summarise(trace: Trace) -> Summary:
    """Return the summary of a trace. Raise TimelineError if its ranks have no iteration in common."""
    times = {rank: iterations(one) for rank, one in trace.ranks.items()}
    shared = set.intersection(*(set(by_name) for by_name in times.values()))
    names = [name for name in next(iter(times.values())) if name in shared]
    if not names:
        raise TimelineError("the ranks have no whole iteration in common: too few spans were kept")
    rows = {rank: [by_name[name] for name in names] for rank, by_name in times.items()}
    return Summary(
        trace,
        names,
        total=fmean(_medians(rows, lambda row: row.total).values()),
        phases={kind: _phase(rows, kind) for kind in PHASES},
        own=_medians(rows, lambda row: row.own),
        loss=fmean(_medians(rows, lambda row: row.loss).values()),
        instances=fmean(_medians(rows, lambda row: row.instances).values()),
        waits=_waits(rows),
    )


def _medians(rows: Rows, seconds: Callable[[IterationTimes], float]) -> dict[int, float]:
    """Return each rank's median over its iterations."""
    return {rank: median(map(seconds, mine)) for rank, mine in rows.items()}


def _phase(rows: Rows, kind: str) -> PhaseTimes:
    busy = _medians(rows, lambda row: row.busy[kind])
    exposed = _medians(rows, lambda row: row.exposed.get(kind, 0.0))
    worst = max(exposed, key=lambda rank: exposed[rank])
    return PhaseTimes(fmean(list(filter(None, busy.values())) or [0.0]), fmean(exposed.values()), worst, exposed[worst])


def _waits(rows: Rows) -> dict[tuple[str, str], float]:
    waits: dict[tuple[str, str], float] = {}
    for kind, bucket in sorted({key for mine in rows.values() for row in mine for key in row.waits}):
        ranks = [median(row.waits.get((kind, bucket), 0.0) for row in mine) for mine in rows.values()]
        waits[kind, bucket] = fmean(ranks)
    return {key: seconds for key, seconds in waits.items() if seconds > 0}
