"""AbsVal: the absolute value of each element."""

from __future__ import annotations

from typing import Any

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import register


class AbsVal(Elementwise):
    """y = |x|; dy/dx = sign(x), 0 at 0. May work in place, which Caffe refuses."""

    keeps_input = True

    def f(self, x: Any, out: Any) -> None:
        self.xp.absolute(x, out=out)

    def df(self, x: Any, y: Any, out: Any) -> None:
        self.xp.sign(x, out=out)


register("AbsVal", AbsVal)
