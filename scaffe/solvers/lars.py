"""LARS, layer-wise adaptive rate scaling (You, Gitman and Ginsburg 2017, algorithm 1)."""

from __future__ import annotations

from scaffe.packed import PackedParameters
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

    def local_rate(self, i: int, rate: float) -> float:
        return super().local_rate(i, rate) * self.param.lars_trust * self._ratio(i)

    def _ratio(self, i: int) -> float:
        part, decay = self.packed.slices[i], self.param.weight_decay * self.packed.parameters[i].decay
        data, diff = (
            norm_of(self.packed.flat[part]),
            norm_of(self.packed.parameters[i].blob.diff_array.reshape(-1)) / self.param.iter_size,
        )
        return data / (diff + decay * data) if data and diff else 1.0


register(LARS)
