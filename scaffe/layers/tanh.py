"""TanH: the hyperbolic tangent."""

from __future__ import annotations

from typing import Any

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import register


class TanH(Elementwise):
    """y = tanh(x); dy/dx = 1 - y^2. May work in place."""

    def f(self, x: Any, out: Any) -> None:
        self.xp.tanh(x, out=out)

    def df(self, x: Any, y: Any, out: Any) -> None:
        self.xp.multiply(y, y, out=out)
        self.xp.subtract(1, out, out=out)


register("TanH", TanH)
