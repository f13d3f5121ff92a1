"""Swish: each element times its sigmoid."""

from __future__ import annotations

from typing import Any

from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import Blobs, register
from scaffe.layers.sigmoid import sigmoid


class Swish(Elementwise):
    """y = x sigmoid(beta x). May work in place. Ramachandran et al. 2017, section 3."""

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        self.beta = self.param.swish_param.beta

    def f(self, x: Any, out: Any) -> None:
        self.gate = self.buffer("gate", x.shape, x.dtype)
        self.xp.multiply(x, self.beta, out=self.gate)
        sigmoid(self.xp, self.gate, self.gate)
        self.xp.multiply(x, self.gate, out=out)

    def df(self, x: Any, y: Any, out: Any) -> None:
        """Compute dy/dx = beta y + sigmoid(beta x) (1 - beta y)."""
        self.xp.multiply(y, -self.beta, out=out)
        out += 1
        out *= self.gate
        out += self.beta * y


register("Swish", Swish)
