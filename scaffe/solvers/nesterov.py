"""Nesterov's accelerated gradient (Sutskever et al. 2013, section 2)."""

from __future__ import annotations

import numpy as np

from scaffe.solvers import register
from scaffe.solvers.rule import Arrays, Rule


class Nesterov(Rule):
    """history = momentum * history + rate * diff; update = (1 + momentum) * history - momentum * previous history."""

    kind = "Nesterov"
    shows = True

    def step(self, diff: np.ndarray, history: Arrays, scratch: Arrays, rate: float, iteration: int) -> None:
        (velocity,), back = history, scratch[0]
        momentum = np.float32(self.param.momentum)
        np.multiply(velocity, -momentum, out=back)
        velocity *= momentum
        diff *= np.float32(rate)
        velocity += diff
        np.multiply(velocity, np.float32(1) + momentum, out=diff)
        diff += back


register(Nesterov)
