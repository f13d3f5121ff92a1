"""TanH: the hyperbolic tangent."""

from __future__ import annotations

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import register


class TanH(Elementwise):
    """y = tanh(x)."""

    def f(self, x, out) -> None:
        self.xp.tanh(x, out=out)

    def df(self, x, y, out) -> None:
        self.xp.multiply(y, y, out=out)
        self.xp.subtract(1, out, out=out)


register("TanH", TanH)
