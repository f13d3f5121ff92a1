"""A solver's parameters, and a few iterations behind a snapshot, for tests that go on with one in other ways."""

from __future__ import annotations

import numpy as np

from scaffe.training.solver import Solver


def values(solver: Solver) -> np.ndarray:
    """Return all parameters, flat."""
    return np.concatenate([p.blob.data.reshape(-1) for p in solver.net.parameters])


def snapshot(solver: Solver) -> tuple[str, np.ndarray]:
    """Return the path of a snapshot after 2 iterations, and the parameters after 2 more. Close the solver."""
    solver.step(2)
    path = solver.snapshot()
    solver.step(2)
    found = values(solver)
    solver.close()
    return path, found
