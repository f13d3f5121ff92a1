"""pycaffe's classes of solvers, each with its own update rule whatever the solver file's type."""

from __future__ import annotations

import os
from typing import Any

from scaffe.errors import ScaffeError
from scaffe.parallel.run import Run
from scaffe.proto import SolverParameter
from scaffe.proto.files import read_solver
from scaffe.pycaffe import processes, ranks
from scaffe.training.solver import Solver


class CaffeSolver(Solver):
    """A solver of a program for pycaffe; of the processes that the program starts, all train together."""

    def __init__(self, param: str | os.PathLike[str] | SolverParameter, **settings: Any):
        processes.join(*ranks.set_by_program())
        super().__init__(param, **{"run": Run(scaling=ranks.scaling())} | settings)
        processes.add(self)


class _Typed(CaffeSolver):
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


KINDS = {one.kind: one for one in _Typed.__subclasses__()}


def get_solver(param: str | os.PathLike[str] | SolverParameter, **settings: Any) -> Solver:
    """Return the solver of a file, of the class of its type; a type that Caffe does not have, such as LARS, has none.

    `settings` are Solver's keywords. Raise ScaffeError for what the user can correct.
    """
    try:
        kind = (param if isinstance(param, SolverParameter) else read_solver(param)).type
    except ScaffeError:
        kind = ""  # which the solver reports, on all ranks alike
    return KINDS.get(kind, CaffeSolver)(param, **settings)
