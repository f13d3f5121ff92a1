"""Span: an interval of time in which a rank worked or waited, and the kinds of spans that timelines hold."""

from __future__ import annotations

from typing import NamedTuple

ITERATION, FORWARD, BACKWARD, UPDATE = "iteration", "forward", "backward", "update"
READ, TRANSFORM = "read", "transform"
PROPAGATION, AGGREGATION, WAIT = "propagation", "aggregation", "wait"
GATHER, INSTANCES = "gather", "instances"  # an addition of instances' gradients, and a wait for other instances
LOSS, STATISTICS = "loss", "statistics"  # small messages that all ranks wait for
MESSAGES = PROPAGATION, AGGREGATION
INSTANCE = "instance "  # the tracks of an instance begin with it and the number: "instance 1, reader data"
BETWEEN = "between layers"  # in place of a bucket's name: the computing thread handled messages


def instance_of(track: str) -> int | None:
    """Return the number of the instance whose track this is, None for a track that is no instance's alone."""
    number = track.removeprefix(INSTANCE).split(",")[0]
    return int(number) if track.startswith(INSTANCE) and number.isdigit() else None


class Span(NamedTuple):
    """Work or a wait of one track, from `begin` to `end` in seconds of this rank's perf_counter.

    `kind` is one of this module's constants, `name` a layer, a bucket or an iteration. `track` is a thread, or a
    lane of messages. For a WAIT, `awaited` is what it waits for: READ, one of MESSAGES, LOSS, STATISTICS or
    INSTANCES.
    """

    kind: str
    name: str
    begin: float
    end: float
    track: str
    awaited: str = ""
