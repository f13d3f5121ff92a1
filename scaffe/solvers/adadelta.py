"""AdaDelta (Zeiler 2012, algorithm 1)."""

from __future__ import annotations

import numpy as np

from scaffe.blobs.packed import PackedParameters
from scaffe.proto import SolverParameter
from scaffe.solvers import register
from scaffe.solvers.rule import Arrays, Rule, blend


class AdaDelta(Rule):
    """Scale the gradient by the ratio of two running root mean squares: of the updates and of the gradients.

    squares = momentum * squares + (1 - momentum) * diff^2
    update  = diff * sqrt((moves + delta) / (squares + delta)); rate * update is subtracted
    moves   = momentum * moves + (1 - momentum) * update^2
    """

    kind = "AdaDelta"
    slots = 2

    def __init__(self, param: SolverParameter, packed: PackedParameters):
        super().__init__(param, packed)
        self._require("momentum", 0 <= param.momentum <= 1, "between 0 and 1")

    def step(self, diff: np.ndarray, history: Arrays, scratch: Arrays, rate: float, iteration: int) -> None:
        (squares, moves), (ratio, temporary) = history, scratch
        momentum, delta = self.param.momentum, np.float32(self.param.delta)
        np.square(diff, out=temporary)
        blend(squares, momentum, temporary)
        np.add(moves, delta, out=ratio)
        ratio /= np.add(squares, delta, out=temporary)
        diff *= np.sqrt(ratio, out=ratio)
        np.square(diff, out=temporary)
        blend(moves, momentum, temporary)
        diff *= np.float32(rate)


register(AdaDelta)
