"""Clip: values limited to a range."""

from __future__ import annotations

from typing import Any

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import Blobs, register


class Clip(Elementwise):
    """y = min(max(x, min), max); dy/dx = 1 for min <= x <= max, else 0. May work in place."""

    keeps_input = True

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.clip_param
        for field in ("min", "max"):
            if not param.HasField(field):
                raise self.error(f"clip_param needs {field}")
        self.least, self.most = param.min, param.max
        if self.least > self.most:
            raise self.error(f"clip_param has min {self.least:g} above max {self.most:g}")

    def f(self, x: Any, out: Any) -> None:
        self.xp.clip(x, self.least, self.most, out=out)

    def df(self, x: Any, y: Any, out: Any) -> None:
        out[...] = (x >= self.least) & (x <= self.most)


register("Clip", Clip)
