"""AbsVal: absolute values."""

from __future__ import annotations

from typing import Any

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import register


class AbsVal(Elementwise):
    """y = |x|; the gradient at 0 is 0."""

    keeps_input = True

    def f(self, x: Any, out: Any) -> None:
        self.xp.absolute(x, out=out)

    def df(self, x: Any, y: Any, out: Any) -> None:
        self.xp.sign(x, out=out)


register("AbsVal", AbsVal)
