"""Exp: the exponential function to a base."""

from __future__ import annotations

from math import log
from typing import Any

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import Blobs, register


class Exp(Elementwise):
    """y = base ^ (scale x + shift); base -1 stands for e. dy/dx = y scale log(base). May work in place."""

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.exp_param
        if param.base != -1 and not param.base > 0:
            raise self.error(f"exp_param has base {param.base:g}; give one above 0, or -1 for e")
        log_base = 1.0 if param.base == -1 else log(param.base)
        self.rate, self.shift = log_base * param.scale, log_base * param.shift

    def f(self, x: Any, out: Any) -> None:
        self.xp.multiply(x, self.rate, out=out)
        out += self.shift
        self.xp.exp(out, out=out)

    def df(self, x: Any, y: Any, out: Any) -> None:
        self.xp.multiply(y, self.rate, out=out)


register("Exp", Exp)
