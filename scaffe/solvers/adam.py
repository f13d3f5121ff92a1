"""Adam (Kingma and Ba 2015, algorithm 1, with the step size of section 2's last paragraph)."""

from __future__ import annotations

from math import sqrt

import numpy as np

from scaffe.blobs.packed import PackedParameters
from scaffe.proto import SolverParameter
from scaffe.solvers import register
from scaffe.solvers.rule import Arrays, Rule, blend, root


class Adam(Rule):
    """Divide the running mean of the gradient by the root of the running mean of its square, bias-corrected.

    mean   = momentum * mean + (1 - momentum) * diff
    square = momentum2 * square + (1 - momentum2) * diff^2
    The update of step t = iteration + 1 is
    rate * sqrt(1 - momentum2^t) / (1 - momentum^t) * mean / (sqrt(square) + delta).
    """

    kind = "Adam"
    slots = 2

    def __init__(self, param: SolverParameter, packed: PackedParameters):
        super().__init__(param, packed)
        for field in ("momentum", "momentum2"):
            self._require(field, 0 <= getattr(param, field) < 1, "at least 0 and below 1")

    def step(self, diff: np.ndarray, history: Arrays, scratch: Arrays, rate: float, iteration: int) -> None:
        (mean, square), temporary = history, scratch[0]
        np.square(diff, out=temporary)
        blend(square, self.param.momentum2, temporary)
        blend(mean, self.param.momentum, diff)
        np.divide(mean, root(square, self.param.delta, out=temporary), out=diff)
        diff *= np.float32(rate * self._correction(iteration + 1))

    def _correction(self, t: int) -> float:
        return sqrt(1 - self.param.momentum2**t) / (1 - self.param.momentum**t)


register(Adam)
