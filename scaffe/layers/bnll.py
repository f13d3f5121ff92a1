"""BNLL: binomial normal log likelihood, a smooth ReLU."""

from __future__ import annotations

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import register
from scaffe.layers.sigmoid import sigmoid


class BNLL(Elementwise):
    """y = log(1 + exp(x)), without overflow for large x."""

    keeps_input = True

    def f(self, x, out) -> None:
        self.xp.logaddexp(x, 0, out=out)

    def df(self, x, y, out) -> None:
        sigmoid(self.xp, x, out)


register("BNLL", BNLL)
