"""HardSwish: each element times a sigmoid of straight lines."""

from __future__ import annotations

from typing import Any

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import register


class HardSwish(Elementwise):
    """y = x min(max(x + 3, 0), 6) / 6. May work in place. Howard et al. 2019, section 5.2."""

    keeps_input = True

    def f(self, x: Any, out: Any) -> None:
        self.xp.multiply(x, self._gate(x), out=out)

    def df(self, x: Any, y: Any, out: Any) -> None:
        out[...] = self._gate(x) + x / 6 * ((x > -3) & (x < 3))

    def _gate(self, x: Any) -> Any:
        return self.xp.clip(x / 6 + 0.5, 0, 1)


register("HardSwish", HardSwish)
