"""pycaffe's classes of solvers, each with its own update rule whatever the solver file's type."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

from scaffe.errors import ScaffeError
from scaffe.parallel.run import Run
from scaffe.proto import SolverParameter
from scaffe.proto.files import read_solver
from scaffe.pycaffe import processes, ranks
from scaffe.training import solver as training

Given = str | os.PathLike[str] | SolverParameter


def _forwarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that calls the one of the solver that this one wraps."""

    @wraps(method)
    def call(self: CaffeSolver, *given: Any, **named: Any) -> Any:
        return getattr(self.wrapped, method.__name__)(*given, **named)

    return call


class CaffeSolver:
    """A solver of a program for pycaffe; of the processes that the program starts, all train together.

    It has the attributes and methods of the solver that it wraps, a scaffe.Solver, which `param` and `settings` make.
    """

    kind: ClassVar[str] = ""  # the solver's type, "" for the file's

    def __init__(self, param: Given, **settings: Any):
        processes.join(*ranks.set_by_program())
        found = training.Solver(_typed(param, self.kind), **{"run": Run(scaling=ranks.scaling())} | settings)
        vars(self)["wrapped"] = found
        processes.add(found)

    step = _forwarded(training.Solver.step)
    solve = _forwarded(training.Solver.solve)
    restore = _forwarded(training.Solver.restore)
    snapshot = _forwarded(training.Solver.snapshot)
    apply_update = _forwarded(training.Solver.apply_update)
    add_callback = _forwarded(training.Solver.add_callback)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the solver."""
        if name == "wrapped":  # the set-up has failed
            raise AttributeError(name)
        return getattr(self.wrapped, name)

    def __setattr__(self, name: str, value: object) -> None:
        """Replace an attribute of the solver."""
        setattr(self.wrapped, name, value)

    def __dir__(self) -> list[str]:
        """Return the names of the solver's attributes."""
        return dir(self.wrapped)


def _typed(param: Given, kind: str) -> Given:
    """Return the solver's fields with another type, unless it is ""."""
    if not kind:
        return param
    found = SolverParameter()
    try:
        found.CopyFrom(param if isinstance(param, SolverParameter) else read_solver(param))
    except ScaffeError:
        return param  # which the solver reports, on all ranks alike
    found.type = kind
    return found


class SGDSolver(CaffeSolver):
    """Train by stochastic gradient descent with momentum."""

    kind = "SGD"


class NesterovSolver(CaffeSolver):
    """Train by Nesterov's accelerated gradient."""

    kind = "Nesterov"


class AdaGradSolver(CaffeSolver):
    """Train by AdaGrad."""

    kind = "AdaGrad"


class RMSPropSolver(CaffeSolver):
    """Train by RMSProp."""

    kind = "RMSProp"


class AdaDeltaSolver(CaffeSolver):
    """Train by AdaDelta."""

    kind = "AdaDelta"


class AdamSolver(CaffeSolver):
    """Train by Adam."""

    kind = "Adam"


KINDS = {one.kind: one for one in CaffeSolver.__subclasses__()}


def get_solver(param: Given, **settings: Any) -> CaffeSolver:
    """Return the solver of a file, of the class of its type; a type that Caffe does not have, such as LARS, has none.

    `settings` are Solver's keywords. Raise ScaffeError for what the user can correct.
    """
    try:
        kind = (param if isinstance(param, SolverParameter) else read_solver(param)).type
    except ScaffeError:
        kind = ""  # which the solver reports, on all ranks alike
    return KINDS.get(kind, CaffeSolver)(param, **settings)
