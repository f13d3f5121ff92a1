"""Report: what ranks were last seen doing, and which of them others wait for, in lines for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from scaffe.monitor.record import (
    BACKWARD,
    FORWARD,
    INSTANCES,
    ITERATION,
    LAYER,
    NET,
    OPERATION,
    OPERATIONS,
    TEST,
    WAIT,
    WAITS,
    Observation,
)
from scaffe.parallel.instances.topology import ranges
from scaffe.proto import LayerParameter

MOST_LINES = 16  # of ranks in a report


class _Layer(Protocol):
    @property
    def label(self) -> str: ...

    @property
    def param(self) -> LayerParameter: ...


class Watched(Protocol):
    """A net, as far as its layers' names are told."""

    @property
    def layers(self) -> Iterable[_Layer]:
        """Its layers."""


class LayerNames:
    """The names of the layers of the train net and the test nets, by net and layer index."""

    def __init__(self, nets: Sequence[Watched]):
        self.names = [[layer.label for layer in net.layers] for net in nets]
        self.reading = [[not layer.param.bottom for layer in net.layers] for net in nets]

    def has(self, row: Sequence[int]) -> bool:
        """Return whether a row can be a record of this job: its net, layer, operation and wait exist."""
        net, operation, layer, wait = row[NET], row[OPERATION], row[LAYER], row[WAIT]
        known = net < len(self.names) and layer < len(self.names[net])
        return known and operation < len(OPERATIONS) and wait < len(WAITS)

    def _is_in_layer(self, row: Sequence[int]) -> bool:
        """Return whether a row has a layer of these nets: another solver of its process may have one with more."""
        return row[LAYER] >= 0 and self.has(row)

    def is_reading(self, row: Sequence[int]) -> bool:
        """Return whether a rank may wait for its reader: its layer has no bottoms."""
        return row[OPERATION] in (FORWARD, TEST) and self._is_in_layer(row) and self.reading[row[NET]][row[LAYER]]

    def is_computing(self, row: Sequence[int]) -> bool:
        """Return whether a rank is in a layer's pass, and waits neither for others nor for its reader."""
        in_layer = row[OPERATION] in (FORWARD, BACKWARD, TEST) and self._is_in_layer(row)
        return in_layer and not row[WAIT] and not self.is_reading(row)

    def place(self, row: Sequence[int]) -> str:
        """Return what a rank is doing: "forward pass of layer conv1, iteration 7".

        A test outside of training has no iteration.
        """
        return self.work(row) if _is_alone(row) else f"{self.work(row)}, iteration {row[ITERATION]}"

    def places(self, one: Observation) -> str:
        """Return what a rank is doing, by instance where several compute: those that do not wait come first.

        For example "instance 2 in backward pass of layer conv1; instances 0-1,3 in backward pass, waiting for the other
        instances; iteration 7". What the main thread does stands before them, unless it waits for them too.
        """
        if all(row[WAIT] == INSTANCES for row in one.instances):
            return self.place(one.row)
        alike: dict[str, list[int]] = {}
        for instance, row in sorted(enumerate(one.instances), key=lambda item: item[1][WAIT] > 0):
            alike.setdefault(self.work(row), []).append(instance)
        parts = [f"instance{'s' * (len(who) > 1)} {ranges(who)} in {what}" for what, who in alike.items()]
        main = [] if one.row[WAIT] == INSTANCES else [self.work(one.row)]
        when = [] if _is_alone(one.row) else [f"iteration {one.row[ITERATION]}"]
        return "; ".join([*main, *parts, *when])

    def work(self, row: Sequence[int]) -> str:
        """Return what a rank, or an instance, is doing, without the iteration."""
        what = OPERATIONS[row[OPERATION]]
        if row[OPERATION] == TEST and row[NET]:
            what += f" net #{row[NET] - 1}"
        name = self.names[row[NET]][row[LAYER]] if self._is_in_layer(row) else ""
        if self.is_reading(row) and not row[WAIT]:
            what += f", waiting for records of layer {name}"
        elif name:
            what += f", layer {name}" if row[OPERATION] == TEST else f" of layer {name}"
        if row[WAIT]:
            what += f", {WAITS[row[WAIT]]}"
        return what


def _is_alone(row: Sequence[int]) -> bool:
    """Return whether a test runs outside of training."""
    return row[OPERATION] == TEST and not row[NET]


def report(me: Observation, others: Sequence[Observation], layers: LayerNames, patience: float) -> list[str]:
    """Return the lines of a report on a stall that `me` sees: its own operation, then one line for each missing rank.

    A rank is missing in three cases:

    - it is unknown: no record of it has arrived;
    - its watchdog has not run for half of `patience`, in seconds;
    - it waits for no other rank, and has not moved for half as long as `me`, or half of `patience`.

    If no rank is missing and `me` waits for others, each of these gets a line: a message may be lost, or one of them
    may work on alone.
    """
    lost = [one for one in others if not one.is_known]
    known = [one for one in others if one.is_known]
    missing = [
        one
        for one in known
        if one.silent > patience / 2 or (not one.is_waiting and one.idle > min(me.idle, patience) / 2)
    ]
    if missing or lost:
        lines = [_line(one, layers, patience) for one in sorted([*missing, *lost], key=lambda one: one.rank)]
        title = "missing:"
    elif me.is_waiting and others:
        lines, title = [_line(one, layers, patience) for one in others], "the others wait too, or work on:"
    else:
        lines, title = [], "no other rank is missing"
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [f"and {len(lines) - MOST_LINES} more ranks"]
    return [f"rank {me.rank} has not moved for {_text(me.idle)} s: {layers.places(me)}; {title}", *lines]


def _line(one: Observation, layers: LayerNames, patience: float) -> str:
    who = f"rank {one.rank} on {one.host}"
    if not one.is_known:
        return f"{who}: unknown, no record has arrived from its node"
    stopped = f"; its process has not run for {_text(one.silent)} s" if one.silent > patience / 2 else ""
    return f"{who}: last seen in {layers.places(one)}, {_text(one.idle)} s ago{stopped}"


def _text(seconds: float) -> str:
    """Return seconds in whole numbers, or below one in tenths."""
    return f"{seconds:.0f}" if seconds >= 1 else f"{seconds:.1f}"
