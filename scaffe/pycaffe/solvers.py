"""pycaffe's classes of solvers, each with its own update rule whatever the solver file's type."""

from __future__ import annotations

import os

from scaffe.proto import SolverParameter
from scaffe.training.solver import Solver


class _Typed(Solver):
    """A solver whose class gives its type."""

    kind: str

    def _checked(self, param: str | os.PathLike[str] | SolverParameter) -> SolverParameter:
        found = SolverParameter()
        found.CopyFrom(super()._checked(param))
        found.type = self.kind
        return found


class SGDSolver(_Typed):
    """Train by stochastic gradient descent with momentum."""

    kind = "SGD"


class NesterovSolver(_Typed):
    """Train by Nesterov's accelerated gradient."""

    kind = "Nesterov"


class AdaGradSolver(_Typed):
    """Train by AdaGrad."""

    kind = "AdaGrad"


class RMSPropSolver(_Typed):
    """Train by RMSProp."""

    kind = "RMSProp"


class AdaDeltaSolver(_Typed):
    """Train by AdaDelta."""

    kind = "AdaDelta"


class AdamSolver(_Typed):
    """Train by Adam."""

    kind = "Adam"
