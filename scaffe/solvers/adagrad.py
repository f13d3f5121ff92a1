"""AdaGrad (Duchi, Hazan and Singer 2011)."""

from __future__ import annotations

import numpy as np

from scaffe.blobs.packed import PackedParameters
from scaffe.proto import SolverParameter
from scaffe.solvers import register
from scaffe.solvers.rule import Arrays, Rule, root


class AdaGrad(Rule):
    """history = history + diff^2; update = rate * diff / (sqrt(history) + delta)."""

    kind = "AdaGrad"

    def __init__(self, param: SolverParameter, packed: PackedParameters):
        super().__init__(param, packed)
        self._require("momentum", param.momentum == 0, "0")

    def step(self, diff: np.ndarray, history: Arrays, scratch: Arrays, rate: float, iteration: int) -> None:
        (squares,), temporary = history, scratch[0]
        np.square(diff, out=temporary)
        squares += temporary
        diff /= root(squares, self.param.delta, out=temporary)
        diff *= np.float32(rate)


register(AdaGrad)
