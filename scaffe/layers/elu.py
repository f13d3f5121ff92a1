"""ELU: the exponential linear unit."""

from __future__ import annotations

from typing import Any

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import Blobs, register


class ELU(Elementwise):
    """y = x for x > 0, else alpha (exp(x) - 1); dy/dx = 1 for x > 0, else y + alpha.

    May work in place. Clevert et al. 2015, section 3.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        self.alpha = self.param.elu_param.alpha
        self.keeps_input = self.alpha < 0  # else y has the sign of x

    def f(self, x: Any, out: Any) -> None:
        negative = self.xp.expm1(self.xp.minimum(x, 0))
        negative *= self.alpha
        self.xp.maximum(x, 0, out=out)
        out += negative

    def df(self, x: Any, y: Any, out: Any) -> None:
        self.xp.add(y, self.alpha, out=out)
        out[x > 0] = 1


register("ELU", ELU)
