"""Stochastic gradient descent with momentum."""

from __future__ import annotations

import numpy as np

from scaffe.solvers import register
from scaffe.solvers.rule import Arrays, Rule


class SGD(Rule):
    """history = momentum * history + rate * diff; update = history."""

    kind = "SGD"
    shows = True

    def step(self, diff: np.ndarray, history: Arrays, scratch: Arrays, rate: float, iteration: int) -> None:
        (velocity,) = history
        velocity *= np.float32(self.param.momentum)
        diff *= np.float32(rate)
        velocity += diff
        diff[...] = velocity


register(SGD)
