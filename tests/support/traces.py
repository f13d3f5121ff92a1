"""Traces made by hand, for tests of what is read out of them."""

from __future__ import annotations

import json
from pathlib import Path

from scaffe.monitor.spans import Span
from scaffe.parallel.run import Run
from scaffe.timeline.trace import RankTrace, Trace, events

MS = 1e-3


def span(kind: str, name: str, begin: float, end: float, track: str = "MainThread", awaited: str = "") -> Span:
    """Return a span, its times in milliseconds."""
    return Span(kind, name, begin * MS, end * MS, track, awaited)


def wait(awaited: str, name: str, begin: float, end: float, track: str = "MainThread") -> Span:
    return span("wait", name, begin, end, track, awaited)


def message(kind: str, name: str, begin: float, end: float, lane: int = 0) -> Span:
    return span(kind, name, begin, end, f"{kind}, lane {lane}")


def trace(*ranks: list[Span], buckets: dict[str, int] | None = None, **run: str) -> Trace:
    """Return the trace of ranks with these spans."""
    made = {
        number: RankTrace(f"rank {number} on node{number}", dict(enumerate(sorted({s.track for s in spans}))), spans)
        for number, spans in enumerate(ranks)
    }
    return Trace(
        made, Run(**{"workflow": "SC-OBR", **run}), {"conv1": 1 << 20, "fc": 8 << 20} if buckets is None else buckets
    )


def write(path: Path, *ranks: list[Span], **changes: object) -> Path:
    """Write such a trace as a run does; `changes` replace parts of the file."""
    made = [event for rank, spans in enumerate(ranks) for event in events(spans, rank, f"node{rank}", 0.0)]
    other = {"run": {"workflow": "SC-OBR"}, "buckets": {"conv1": 1 << 20, "fc": 8 << 20}}
    path.write_text(json.dumps({"traceEvents": made, "otherData": other, **changes}))
    return path


def root(start: float = 0, number: int = 0) -> list[Span]:
    """Return an iteration of 100 ms of a rank that updates.

    Reading 8, of which 3 waited for; transforming 4, of which 1; forward 20, of which propagation hides 5 of 10;
    backward 30; aggregation 40, of which 12 - 4 (an update) waited for; loss 2.
    """
    at = [
        span("iteration", f"iteration {number}", 0, 100),
        span("read", "data", -5, 8, "reader data"),
        span("transform", "data", 8, 12, "reader data"),
        wait("read", "data", 5, 9),
        message("propagation", "conv1", 0, 10),
        message("propagation", "fc", 4, 9, lane=1),
        wait("propagation", "conv1", 0, 5),
        span("forward", "conv1", 10, 20),
        span("forward", "fc", 20, 30),
        wait("loss", "loss", 30, 32),
        span("backward", "fc", 32, 42),
        span("backward", "conv1", 42, 62),
        message("aggregation", "fc", 40, 70),
        message("aggregation", "conv1", 60, 80, lane=1),
        wait("aggregation", "fc", 62, 74),
        span("update", "fc", 70, 74),
        span("update", "conv1", 80, 83),
    ]
    return [span(s.kind, s.name, s.begin / MS + start, s.end / MS + start, s.track, s.awaited) for s in at]
