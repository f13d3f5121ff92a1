"""Stochastic gradient descent with momentum."""

from __future__ import annotations

import numpy as np

from scaffe.solvers import register
from scaffe.solvers.rule import Rule


class SGD(Rule):
    """history = rate * diff + momentum * history; the update is the history."""

    kind = "SGD"

    def step(self, i: int, diff: np.ndarray, rate: float, iteration: int) -> None:
        history = self.history[0][self.packed.slices[i]]
        history *= np.float32(self.param.momentum)
        diff *= np.float32(rate)
        history += diff
        diff[...] = history


register(SGD)
