"""BNLL: binomial normal log likelihood, a smooth ReLU."""

from __future__ import annotations

from typing import Any

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import register
from scaffe.layers.sigmoid import sigmoid


class BNLL(Elementwise):
    """y = log(1 + exp(x)), computed without overflow; dy/dx = 1 / (1 + exp(-x)). May work in place."""

    keeps_input = True

    def f(self, x: Any, out: Any) -> None:
        self.xp.logaddexp(x, 0, out=out)

    def df(self, x: Any, y: Any, out: Any) -> None:
        sigmoid(self.xp, x, out)


register("BNLL", BNLL)
