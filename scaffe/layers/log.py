"""Log: the logarithm to a base."""

from __future__ import annotations

from math import log
from typing import Any

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import Blobs, register


class Log(Elementwise):
    """y = log(scale x + shift) / log(base); base -1 stands for e. dy/dx = scale / ((scale x + shift) log(base)).

    May work in place.
    """

    keeps_input = True

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.log_param
        if param.base != -1 and (not param.base > 0 or param.base == 1):
            raise self.error(f"log_param has base {param.base:g}; give one above 0 that is not 1, or -1 for e")
        self.scale, self.shift = param.scale, param.shift
        self.per_e = 1.0 if param.base == -1 else 1 / log(param.base)

    def f(self, x: Any, out: Any) -> None:
        self._affine(x, out)
        self.xp.log(out, out=out)
        out *= self.per_e

    def df(self, x: Any, y: Any, out: Any) -> None:
        self._affine(x, out)
        self.xp.divide(self.scale * self.per_e, out, out=out)

    def _affine(self, x: Any, out: Any) -> None:
        self.xp.multiply(x, self.scale, out=out)
        out += self.shift


register("Log", Log)
