"""AbsVal: absolute values."""

from __future__ import annotations

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import register


class AbsVal(Elementwise):
    """y = |x|; the gradient at 0 is 0."""

    keeps_input = True

    def f(self, x, out) -> None:
        self.xp.absolute(x, out=out)

    def df(self, x, y, out) -> None:
        self.xp.sign(x, out=out)


register("AbsVal", AbsVal)
