"""Power: a power of a linear function."""

from __future__ import annotations

from typing import Any

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import Blobs, register


class Power(Elementwise):
    """y = (scale x + shift) ^ power; dy/dx = power scale y / (scale x + shift).

    As in Caffe, the gradient is NaN where scale x + shift is 0, unless power is 0, 1 or 2. May work in place.
    """

    keeps_input = True

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.power_param
        self.power, self.scale, self.shift = param.power, param.scale, param.shift

    def f(self, x: Any, out: Any) -> None:
        if not self.power:
            out[...] = 1
            return
        self._affine(x, out)
        if self.power != 1:
            self.xp.power(out, self.power, out=out)

    def df(self, x: Any, y: Any, out: Any) -> None:
        slope = self.power * self.scale
        if slope == 0 or self.power == 1:
            out[...] = slope
            return
        self._affine(x, out)
        if self.power != 2:
            self.xp.divide(y, out, out=out)
        out *= slope

    def _affine(self, x: Any, out: Any) -> None:
        self.xp.multiply(x, self.scale, out=out)
        out += self.shift


register("Power", Power)
