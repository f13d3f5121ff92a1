"""get_solver: pycaffe's way to a solver."""

from __future__ import annotations

import os
from typing import Any

from scaffe.proto import SolverParameter
from scaffe.training import presets
from scaffe.training.solver import Solver


def get_solver(path: str | os.PathLike[str] | SolverParameter, *, preset: str = "", **settings: Any) -> Solver:
    """Return the solver that a prototxt file, or its fields, describes.

    `preset` names a paper's settings, one of `presets.PRESETS`. `settings` are Solver's keywords; a record among them
    replaces the preset's. Raise ScaffeError for an unknown preset.
    """
    chosen = vars(presets.find(preset).settings) if preset else {}
    return Solver(path, **(chosen | settings))
