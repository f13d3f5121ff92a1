"""Report: what the host is told of a pass without waiting for it: the loss, and labels that are no classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.devices.gpu import Late
from scaffe.engines.cuda.engine import Engine
from scaffe.errors import LabelError
from scaffe.layers.layer import Layer

LOSS, LAYER, ROW, LABEL = range(4)  # where a report's numbers stand; layers count from 1, 0 stands for no fault


class Report:
    """The numbers on the device, and room for two copies on their way: the host is at most one iteration behind."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self.numbers = engine.gpu.xp.zeros(4, np.float64)
        self._layers: list[tuple[str, int]] = []  # those that have labels checked, with their classes
        self._rooms: list[Late] = []

    def check(self, layer: Layer, labels: Any, rows: int, classes: int, ignore: int | None) -> None:
        """Have the first label noted that is neither a whole number from 0 to classes - 1 nor `ignore`."""
        known = layer.name, classes
        if known not in self._layers:
            self._layers.append(known)
        numbers = np.int64(labels.size // rows), classes, *ignoring(ignore), self._layers.index(known) + 1
        self.engine.launch("losses", "check_labels", (1,), np.int64(labels.size), labels, *numbers, self.numbers)

    def add(self, values: Any, weight: float, first: bool) -> None:
        """Add a top's part of the loss, to nothing if it is the first."""
        arguments = values, np.int64(values.size), np.float64(weight), int(first), self.numbers
        self.engine.launch("losses", "add_loss", (1,), *arguments)

    def send(self) -> Sent:
        """Send the numbers to the host; at most two reports may be under way."""
        if not self._rooms:
            self._rooms = [self.engine.gpu.late(self.numbers.size) for _ in range(2)]
        self._rooms.reverse()
        self._rooms[0].send(self.numbers)
        return Sent(self, self._rooms[0])

    def loss_of(self, numbers: list[float]) -> float:
        """Return the loss. Raise LabelError where a label is no class."""
        if number := int(numbers[LAYER]):
            self.numbers[LAYER:] = 0
            name, classes = self._layers[number - 1]
            raise LabelError(name, int(numbers[ROW]), numbers[LABEL], classes)
        return numbers[LOSS]

    def complain(self) -> None:
        """Wait for the pass, and raise LabelError where a label of it is no class."""
        if self._layers:
            self.loss_of(self.numbers.get().tolist())


class Sent:
    """A report on its way."""

    def __init__(self, report: Report, room: Late):
        self._report, self._room = report, room

    def loss(self) -> float:
        """Return the loss of the passes reported. Raise LabelError where a label of theirs is no class."""
        return self._report.loss_of(self._room.read())


def ignoring(ignore: int | None) -> tuple[int, float]:
    """Return what kernels are told of a label that doesn't count: is there one, and which."""
    return int(ignore is not None), float(ignore or 0)
