"""RMSProp (Tieleman and Hinton 2012)."""

from __future__ import annotations

import numpy as np

from scaffe.blobs.packed import PackedParameters
from scaffe.proto import SolverParameter
from scaffe.solvers import register
from scaffe.solvers.rule import Arrays, Rule, blend, root


class RMSProp(Rule):
    """history = rms_decay * history + (1 - rms_decay) * diff^2; update = rate * diff / (sqrt(history) + delta)."""

    kind = "RMSProp"

    def __init__(self, param: SolverParameter, packed: PackedParameters):
        super().__init__(param, packed)
        self._require("momentum", param.momentum == 0, "0")
        self._require("rms_decay", 0 <= param.rms_decay < 1, "at least 0 and below 1")

    def step(self, diff: np.ndarray, history: Arrays, scratch: Arrays, rate: float, iteration: int) -> None:
        (squares,), temporary = history, scratch[0]
        np.square(diff, out=temporary)
        blend(squares, self.param.rms_decay, temporary)
        diff /= root(squares, self.param.delta, out=temporary)
        diff *= np.float32(rate)


register(RMSProp)
