"""Trace: all ranks' timelines in one file, in Chrome's trace format, which https://ui.perfetto.dev shows.

In the trace a process is a rank, and a thread is a thread of the rank or a lane of its messages. Times are
microseconds of the root's clock.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from readers.files import read_input
from scaffe.atomic import write_atomically
from scaffe.errors import ScaffeError, TimelineError
from scaffe.monitor.record import RANKS
from scaffe.monitor.spans import ITERATION, Span, instance_of
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.version import __version__

ROUNDS = 32  # pings of each rank, of which the fastest is used
FIRST_TRACKS = ("iterations", "MainThread", "compute")  # then those of the instances, then the others, by name


def write(world: World, path: str | os.PathLike[str], spans: Sequence[Span], about: Mapping[str, Any]) -> None:
    """Write all ranks' spans to `path`, on the root; the file appears complete or not at all. Collective.

    `spans` are this rank's, in seconds of its perf_counter. `about` is added to the trace's "otherData": the run's
    settings and the buckets' bytes. Raise SnapshotError on all ranks if the file can't be written.
    """
    offset = clock_offset(world)
    starts = world.allgather(min((span.begin + offset for span in spans), default=float("inf")))
    lines = [json.dumps(event) for event in events(spans, world.rank, world.host, offset - min(starts))]
    with world.record.waiting(RANKS):
        parts = world.comm.gather(",\n".join(lines), world.root)
    other = {"program": f"scaffe {__version__}", "ranks": world.size, **about}
    world.on_root(lambda: write_atomically(path, document(parts or [], other).encode()))


def document(parts: Sequence[str], other: Mapping[str, Any]) -> str:
    """Return the text of a trace."""
    text = ",\n".join(filter(None, parts))
    return f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(other)}, "traceEvents": [\n{text}\n]}}\n'


def clock_offset(world: World) -> float:
    """Return the seconds to add to this rank's perf_counter to get the root's. Collective.

    The fastest of several pings is used; a ping gives the offset to within half its round trip (Cristian, 1989). An
    offset smaller than that is returned as 0, as between ranks of one node.
    """
    offset = 0.0
    for rank in range(world.size):
        if rank != world.root and world.rank in (rank, world.root):
            offset = _answer(world, rank) if world.is_root else _ping(world)
    return 0.0 if world.is_root else offset


def _answer(world: World, rank: int) -> float:
    for _ in range(ROUNDS):
        world.comm.recv(source=rank)
        world.comm.send(perf_counter(), dest=rank)
    return 0.0


def _ping(world: World) -> float:
    best = offset = float("inf")
    for _ in range(ROUNDS):
        begin = perf_counter()
        world.comm.send(None, dest=world.root)
        there = world.comm.recv(source=world.root)
        end = perf_counter()
        if end - begin < best:
            best, offset = end - begin, there - (begin + end) / 2
    return 0.0 if abs(offset) <= best / 2 else offset


def events(spans: Sequence[Span], rank: int, host: str, offset: float) -> list[dict[str, Any]]:
    """Return a rank's events: the names of its tracks, then its spans in order of `begin`.

    `offset` is added to the spans' times, in seconds.
    """
    names = sorted({_track(span) for span in spans}, key=_position)
    tracks = {name: number for number, name in enumerate(names)}
    named = [
        _meta("process_name", rank, 0, name=f"rank {rank} on {host}"),
        _meta("process_sort_index", rank, 0, sort_index=rank),
    ]
    for name, number in tracks.items():
        named.append(_meta("thread_name", rank, number, name="main" if name == "MainThread" else name))
        named.append(_meta("thread_sort_index", rank, number, sort_index=number))
    ordered = sorted(spans, key=lambda span: (span.begin, -span.end))
    return named + [_event(span, rank, tracks[_track(span)], offset) for span in ordered]


def _track(span: Span) -> str:
    """Return the track that shows a span: iterations have a track above all others."""
    return "iterations" if span.kind == ITERATION else span.track


def _position(track: str) -> tuple[int, int, str]:
    """Return what tracks are sorted by."""
    if track in FIRST_TRACKS:
        return FIRST_TRACKS.index(track), 0, track
    instance = instance_of(track)
    return (len(FIRST_TRACKS) + 1, 0, track) if instance is None else (len(FIRST_TRACKS), instance, track)


def _meta(what: str, rank: int, track: int, **values: object) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": rank, "tid": track, "args": values}


def _event(span: Span, rank: int, track: int, offset: float) -> dict[str, Any]:
    begin, end = (round(1e6 * (seconds + offset), 3) for seconds in (span.begin, span.end))
    event = {"ph": "X", "name": span.name, "cat": span.kind, "pid": rank, "tid": track, "ts": begin}
    event["dur"] = round(end - begin, 3)
    if span.awaited:
        event["args"] = {"for": span.awaited}
    return event


@dataclass
class RankTrace:
    """A rank's spans, in seconds of the root's clock, and its tracks' names by number, in display order."""

    name: str = ""
    tracks: dict[int, str] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)


@dataclass
class Trace:
    """All ranks' spans by rank, the run's settings, and the buckets' bytes by name."""

    ranks: dict[int, RankTrace]
    run: Run
    buckets: Mapping[str, int]


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Return the trace that `scaffe train --timeline` wrote. Raise TimelineError for any other file."""
    try:
        text = read_input(path).decode()
    except OSError as error:
        raise TimelineError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise TimelineError(f"{path}: not a timeline, but a binary file") from None
    if not text.strip():
        raise TimelineError(f"{path}: empty")
    try:
        content = json.loads(text)
        trace = _trace(content["traceEvents"], content["otherData"])
    except json.JSONDecodeError as error:
        raise TimelineError(f"{path}: not a timeline: no JSON at line {error.lineno}: {error.msg}") from None
    except (KeyError, TypeError, AttributeError, ValueError, ScaffeError):
        raise TimelineError(f"{path}: not a timeline that scaffe train --timeline wrote") from None
    if not any(span.kind == ITERATION for rank in trace.ranks.values() for span in rank.spans):
        raise TimelineError(f"{path}: holds no iteration")
    return trace


def _trace(events: Iterable[Mapping[str, Any]], other: Mapping[str, Any]) -> Trace:
    ranks: defaultdict[int, RankTrace] = defaultdict(RankTrace)
    for event in events:
        rank, track = ranks[int(event["pid"])], int(event["tid"])
        if event["name"] == "process_name":
            rank.name = str(event["args"]["name"])
        elif event["name"] == "thread_name":
            rank.tracks[track] = str(event["args"]["name"])
        elif event["ph"] == "X":
            begin, end = 1e-6 * event["ts"], 1e-6 * (event["ts"] + event["dur"])
            awaited = event.get("args", {}).get("for", "")
            rank.spans.append(Span(event["cat"], event["name"], begin, end, rank.tracks[track], awaited))
    return Trace(dict(sorted(ranks.items())), Run(**other["run"]), dict(other["buckets"]))
