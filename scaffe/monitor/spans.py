"""Span: an interval of time in which a rank worked or waited, and the kinds of spans that timelines hold."""

from __future__ import annotations

from typing import NamedTuple

ITERATION, FORWARD, BACKWARD, UPDATE = "iteration", "forward", "backward", "update"
READ, TRANSFORM = "read", "transform"
PROPAGATION, AGGREGATION, WAIT = "propagation", "aggregation", "wait"
LOSS, STATISTICS = "loss", "statistics"  # small messages that all ranks wait for
MESSAGES = PROPAGATION, AGGREGATION
BETWEEN = "between layers"  # in place of a bucket's name: the computing thread handled messages


class Span(NamedTuple):
    """Work or a wait of one track, from `begin` to `end` in seconds of this rank's perf_counter.

    `kind` is one of this module's constants, `name` a layer, a bucket or an iteration. `track` is a thread, or a
    lane of messages. For a WAIT, `awaited` is what it waits for: READ, one of MESSAGES, LOSS or STATISTICS.
    """

    kind: str
    name: str
    begin: float
    end: float
    track: str
    awaited: str = ""
