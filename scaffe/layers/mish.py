"""Mish: each element times the hyperbolic tangent of its softplus."""

from __future__ import annotations

from typing import Any

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import register
from scaffe.layers.sigmoid import sigmoid


class Mish(Elementwise):
    """y = x tanh(log(1 + e^x)). May work in place. Misra 2019, section 1."""

    keeps_input = True

    def f(self, x: Any, out: Any) -> None:
        self.xp.multiply(x, self._gate(x), out=out)

    def df(self, x: Any, y: Any, out: Any) -> None:
        """Compute dy/dx = gate + x sigmoid(x) (1 - gate^2)."""
        gate = self._gate(x)
        slope = self.xp.empty_like(x)
        sigmoid(self.xp, x, slope)
        out[...] = gate + x * slope * (1 - gate * gate)

    def _gate(self, x: Any) -> Any:
        return self.xp.tanh(self.xp.logaddexp(x, 0))


register("Mish", Mish)
