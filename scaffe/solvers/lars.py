"""LARS, layer-wise adaptive rate scaling (You, Gitman and Ginsburg 2017, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from scaffe.blobs.packed import PackedParameters
from scaffe.proto import SolverParameter
from scaffe.solvers import register
from scaffe.solvers.rule import norm_of
from scaffe.solvers.sgd import SGD


class LARS(SGD):
    """SGD with momentum and a learning rate for each parameter blob.

    The rate is multiplied by lars_trust * |data| / (|diff| + decay * |data|), with L2 norms. If a norm is 0, as that
    of a bias at the start, the rate is multiplied by lars_trust alone; with the paper's formula it would stay 0.
    """

    kind = "LARS"
    elementwise = False

    def __init__(self, param: SolverParameter, packed: PackedParameters):
        super().__init__(param, packed)
        self._require("lars_trust", param.lars_trust > 0, "above 0")
        self._require("regularization_type", param.regularization_type == "L2", "L2")
        self._squares = np.zeros((2, 0))  # of all ranks' values and gradients, by parameter

    def join_norms(self, join: Callable[[np.ndarray], np.ndarray]) -> None:
        """Clip, and sum the squares of each parameter's values and gradients over its owners. Collective."""
        super().join_norms(join)
        squares = np.zeros((2, len(self.packed.parameters)))
        for i, whole in enumerate(self.packed.slices):
            self.packed.settle(i)
            for part in self.owned.within(whole):
                squares[:, i] += norm_of(self.packed.flat[part]) ** 2, norm_of(self.packed.diff_of(part)) ** 2
        self._squares = join(squares.reshape(-1)).reshape(2, -1)

    def local_rate(self, i: int, rate: float) -> float:
        return super().local_rate(i, rate) * self.param.lars_trust * self._ratio(i)

    def _ratio(self, i: int) -> float:
        data, diff = self._norms(i)
        diff, decay = diff / self.param.iter_size, self.param.weight_decay * self.packed.parameters[i].decay
        return data / (diff + decay * data) if data and diff else 1.0

    def _norms(self, i: int) -> tuple[float, float]:
        """Return the norms of a parameter's values and gradient, by those of all ranks if this one has a part of it."""
        whole = self.packed.slices[i]
        if self.owned.within(whole) != [whole]:
            return float(sqrt(self._squares[0, i])), float(sqrt(self._squares[1, i]))
        return norm_of(self.packed.flat[whole]), norm_of(self.packed.parameters[i].blob.diff_array.reshape(-1))


register(LARS)
