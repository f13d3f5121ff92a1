"""LogTable: the numbers that a log has about one net, a row for each iteration that it shows."""

from __future__ import annotations

from array import array
from math import nan
from typing import Any

import numpy as np

LOSS, RATE = "loss", "lr"  # keys of LogTable.own


class LogTable:
    """Rows of iteration, seconds and values, in the order of iterations.

    `own` has the loss and the learning rate, `outputs` the net's outputs by name. A net whose output has several values
    has them as name, name[1], name[2]. A value that a row lacks is NaN.
    """

    def __init__(self) -> None:
        self.iterations, self.times = array("q"), array("d")
        self.own: dict[str, array[float]] = {}
        self.outputs: dict[str, array[float]] = {}
        self.weighted: set[str] = set()  # the outputs that are parts of the loss
        self._named: set[str] = set()  # the outputs that the last row has

    def __len__(self) -> int:
        return len(self.iterations)

    @property
    def seconds(self) -> Any:
        """The seconds of all rows (float64)."""
        return np.array(self.times)

    def begin(self, iteration: int, seconds: float) -> None:
        """Begin a row. Rows of this and of later iterations are dropped: a resumed run computes them again."""
        rows = kept = len(self.iterations)
        while kept and self.iterations[kept - 1] >= iteration:
            kept -= 1
        if kept < rows:
            del self.iterations[kept:], self.times[kept:]
            for column in (*self.own.values(), *self.outputs.values()):
                del column[kept:]
        self.iterations.append(iteration)
        self.times.append(seconds)
        self._named = set()

    def put(self, name: str, value: float) -> None:
        """Add the loss or the learning rate to the last row."""
        self._put(self.own, name, value)

    def add_loss(self, part: float) -> None:
        """Add a part of the loss to that of the last row."""
        column = self.own.get(LOSS, array("d"))
        self.put(LOSS, part + (column[-1] if len(column) == len(self) else 0.0))

    def put_output(self, name: str, value: float) -> str:
        """Add an output's value to the last row; return the name that it has there."""
        unique, k = name, 0
        while unique in self._named:
            k += 1
            unique = f"{name}[{k}]"
        self._named.add(unique)
        self._put(self.outputs, unique, value)
        return unique

    def _put(self, columns: dict[str, array[float]], name: str, value: float) -> None:
        if (column := columns.get(name)) is None:
            column = columns[name] = array("d")
        missing = len(self.iterations) - 1 - len(column)
        if missing > 0:
            column.extend([nan] * missing)
        elif missing < 0:
            column.pop()
        column.append(value)

    def column(self, name: str, own: bool = False) -> Any:
        """Return all rows' values of an output, or of the loss or the learning rate (float64, NaN where missing)."""
        found = (self.own if own else self.outputs).get(name, array("d"))
        return np.concatenate([np.array(found), np.full(len(self) - len(found), nan)])

    def latest(self) -> tuple[int, dict[str, float]]:
        """Return the iteration of the last row that has outputs, and these by name; -1 if there is none."""
        rows = max(map(len, self.outputs.values()), default=0)
        values = {name: column[-1] for name, column in self.outputs.items() if len(column) == rows and rows}
        return self.iterations[rows - 1] if rows else -1, values
