"""ReLU6: a rectified linear unit that is limited to 6."""

from __future__ import annotations

from typing import Any

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import Blobs, register

MOST = 6


class ReLU6(Elementwise):
    """y = min(max(x, 0) + negative_slope min(x, 0), 6) for each element, of `relu6_param`; dy/dx is 0 from 6 on.

    Of MobileNets. May work in place. As in ReLU the gradient follows y there.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        self.slope = self.param.relu6_param.negative_slope

    def f(self, x: Any, out: Any) -> None:
        if self.slope:
            self.xp.minimum(self.xp.where(x > 0, x, self.slope * x), MOST, out=out)
        else:
            self.xp.clip(x, 0, MOST, out=out)

    def df(self, x: Any, y: Any, out: Any) -> None:
        out[...] = (x > 0) & (x < MOST)
        if self.slope:
            out += self.slope * (x <= 0)


register("ReLU6", ReLU6)
