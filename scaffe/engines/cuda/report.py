"""Report: what the host reads of a pass one iteration late: the loss, and labels that are no classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.devices.gpu import Late
from scaffe.engine import LayerView, Loss, NetView
from scaffe.engines.cuda.launcher import Launcher
from scaffe.errors import LabelError

LOSS, LAYER, ROW, LABEL = range(4)  # where a report's numbers stand; layers count from 1, 0 stands for no fault


class Report:
    """The numbers on the device, and room on the host for two copies: the host is at most one iteration behind."""

    def __init__(self, engine: Launcher):
        self.engine = engine
        self.numbers = engine.gpu.xp.zeros(4, np.float64)
        self._layers: list[tuple[str, int]] = []  # those that have labels checked, with their classes
        self._rooms: list[Late] = []

    def check(self, layer: LayerView, labels: Any, rows: int, classes: int, ignore: int | None) -> None:
        """Note the first label that is neither a whole number from 0 to classes - 1 nor `ignore`."""
        known = layer.name, classes
        if known not in self._layers:
            self._layers.append(known)
        numbers = np.int64(labels.size // rows), classes, *ignoring(ignore), self._layers.index(known) + 1
        self.engine.launch("losses", "check_labels", (1,), np.int64(labels.size), labels, *numbers, self.numbers)

    def add(self, values: Any, weight: float, first: bool) -> None:
        """Add a top's part of the loss; the `first` one of an iteration takes the place of what was there."""
        arguments = values, np.int64(values.size), np.float64(weight), int(first), self.numbers
        self.engine.launch("losses", "add_loss", (1,), *arguments)

    def send(self) -> Late:
        """Send the numbers to the host, and return where they arrive; at most two reports may be under way."""
        if not self._rooms:
            self._rooms = [self.engine.gpu.late(self.numbers.size) for _ in range(2)]
        self._rooms.reverse()
        self._rooms[0].send(self.numbers)
        return self._rooms[0]

    def loss_of(self, numbers: list[float]) -> float:
        """Return the loss that these numbers hold. Raise LabelError where a label is no class."""
        if number := int(numbers[LAYER]):
            self.numbers[LAYER:] = 0
            name, classes = self._layers[number - 1]
            raise LabelError(name, int(numbers[ROW]), numbers[LABEL], classes)
        return numbers[LOSS]

    def complain(self) -> None:
        """Wait for the pass. Raise LabelError where a label of it is no class."""
        if self._layers:
            self.loss_of(self.numbers.get().tolist())


class LateLoss(Loss):
    """A loss that the device sums up, and that the host reads one iteration late."""

    late = True

    def __init__(self, report: Report, net: NetView):
        super().__init__(net)
        self._report, self._first = report, True
        self._room: Late | None = None

    def add(self, passes: int) -> None:
        for i, j, weight in self.net.losses:
            self._report.add(self.net.tops[i][j].array, 1 / passes * weight, self._first)
            self._first = False

    def send(self) -> None:
        self._room = self._report.send()

    def value(self) -> float:
        assert self._room is not None, "send() comes first"
        return self._report.loss_of(self._room.read())


def ignoring(ignore: int | None) -> tuple[int, float]:
    """Return a kernel's two arguments for the label that is ignored: is there one, and which."""
    return int(ignore is not None), float(ignore or 0)
