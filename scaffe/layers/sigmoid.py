"""Sigmoid: the logistic function."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import register


def sigmoid(xp: ModuleType, x: Any, out: Any) -> None:
    """Write 1 / (1 + exp(-x)) into `out`, which may be `x`; computed by tanh, which does not overflow."""
    xp.multiply(x, 0.5, out=out)
    xp.tanh(out, out=out)
    out *= 0.5
    out += 0.5


class Sigmoid(Elementwise):
    """y = 1 / (1 + exp(-x)); dy/dx = y (1 - y). May work in place."""

    def f(self, x: Any, out: Any) -> None:
        sigmoid(self.xp, x, out)

    def df(self, x: Any, y: Any, out: Any) -> None:
        self.xp.subtract(1, y, out=out)
        out *= y


register("Sigmoid", Sigmoid)
