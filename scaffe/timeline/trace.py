"""Trace: all ranks' timelines in one file, in Chrome's trace format, which https://ui.perfetto.dev shows.

In the trace a process is a rank, and a thread is a thread of the rank or a lane of its messages. Times are
microseconds of the root's clock.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from time import perf_counter
from typing import Any, cast

from collectives.group import Group, among
from readers.files import read_input
from scaffe.errors import ScaffeError, TimelineError
from scaffe.files.atomic import write_atomically
from scaffe.monitor.record import RANKS
from scaffe.monitor.spans import ITERATION, Span, instance_of
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.version import __version__

ROUNDS = 32  # pings of a rank to the one above it, of which the fastest is used
FIRST_TRACKS = ("iterations", "MainThread", "compute")  # then those of the instances, then the others, by name


def write(world: World, path: str | os.PathLike[str], spans: Sequence[Span], about: Mapping[str, Any]) -> None:
    """Write all ranks' spans to `path`, on the root; the file appears complete or not at all. Collective.

    `spans` are this rank's, in seconds of its perf_counter. `about` is added to the trace's "otherData": the run's
    settings and the buckets' bytes. Raise SnapshotError on all ranks if the file can't be written.
    """
    with world.record.waiting(RANKS):
        offset = clock_offset(world)
    start = world.allmin(min((span.begin + offset for span in spans), default=float("inf")))
    lines = [json.dumps(event) for event in events(spans, world.rank, world.host, offset - start)]
    texts = _by_nodes(world, ",\n".join(lines))
    other = {"program": f"scaffe {__version__}", "ranks": world.size, **about}

    def put_together() -> None:
        try:
            write_atomically(path, document(texts, other))
        finally:
            deque(texts, maxlen=0)  # the other nodes have sent theirs

    world.on_root(put_together)


def _by_nodes(world: World, mine: str) -> Iterator[str]:
    """Return an iterator over the texts of all nodes, on the root, which receives one at a time. Collective.

    A node's first rank puts those of its ranks together.
    """
    group = world.group or Group.from_comm(world.comm)
    node = among(world.comm, group.members(world.rank))
    with world.record.waiting(RANKS):
        texts = ",\n".join(filter(None, node.gather(mine) or []))
        node.Free()
        if world.rank in group.firsts[1:]:
            world.comm.send(texts, dest=world.root)
    return chain([texts], map(partial(_received, world), group.firsts[1:])) if world.is_root else iter(())


def _received(world: World, rank: int) -> str:
    with world.record.waiting(RANKS):
        return cast(str, world.comm.recv(source=rank))


def document(parts: Iterable[str], other: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the text of a trace in pieces, one for each part."""
    start = f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(other)}, "traceEvents": [\n'
    for part in filter(None, parts):
        yield (start + part).encode()
        start = ",\n"
    yield (start.removeprefix(",") if start == ",\n" else start + "\n").encode()
    yield b"]}\n"


def clock_offset(world: World) -> float:
    """Return the seconds to add to this rank's perf_counter to get the root's. Collective.

    Each rank asks the one above it in a binomial tree, which adds its own offset. The fastest of several pings is
    used; a ping gives the offset to within half its round trip (Cristian, 1989). An offset smaller than that is
    returned as 0, as between ranks of one node. The errors of the at most log2 P pings between a rank and the root add.
    """
    above = world.rank & (world.rank - 1)  # the root is rank 0
    offset = 0.0 if world.is_root else _ping(world, above)
    step = 1 << (world.size - 1).bit_length()
    while step := step >> 1:  # the rank with most below it first
        if (world.is_root or step < world.rank & -world.rank) and world.rank + step < world.size:
            _answer(world, world.rank + step, offset)
    return offset


def _answer(world: World, rank: int, offset: float) -> None:
    for _ in range(ROUNDS):
        world.comm.recv(source=rank)
        world.comm.send(perf_counter(), dest=rank)
    world.comm.send(offset, dest=rank)


def _ping(world: World, above: int) -> float:
    best = offset = float("inf")
    for _ in range(ROUNDS):
        begin = perf_counter()
        world.comm.send(None, dest=above)
        there = world.comm.recv(source=above)
        end = perf_counter()
        if end - begin < best:
            best, offset = end - begin, there - (begin + end) / 2
    return float(world.comm.recv(source=above)) + (0.0 if abs(offset) <= best / 2 else offset)


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
