"""Training of one parameter down a parabola: by scaffe's solver, and by a rule of a few lines in double precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from google.protobuf import text_format

import scaffe
from scaffe.proto import SolverParameter

START = np.array([[0.5, -1.25, 3.0], [-0.03, 0.75, -2.0]])
STEPS = 5
RATE = 0.0625
NET = """
layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 2 dim: 3 } } }
layer { name: "loss" type: "Reduction" bottom: "p" top: "loss" loss_weight: 1 reduction_param { operation: SUMSQ } }
"""
Update = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


def trained(kind: str, **fields: object) -> np.ndarray:
    """Return the parameter after STEPS iterations of a solver of that type."""
    param = SolverParameter(type=kind, base_lr=RATE, lr_policy="fixed", snapshot_after_train=False, **fields)
    text_format.Parse(NET, param.net_param)
    solver = scaffe.get_solver(param)
    solver.net.params["p"][0].data[...] = START
    solver.step(STEPS)
    return solver.net.params["p"][0].data.copy()


def by_hand(update: Update, start: np.ndarray = START) -> np.ndarray:
    """Return the parameter after STEPS iterations that each subtract `update(gradient, parameter, iteration)`."""
    parameter = np.array(start, np.float64)
    for iteration in range(STEPS):
        parameter = parameter - update(2 * parameter, parameter, iteration)
    return parameter


def assert_trained(kind: str, update: Update, **fields: object) -> None:
    """Fail unless the solver's parameter is the rule's."""
    np.testing.assert_allclose(trained(kind, **fields), by_hand(update), rtol=2e-6, atol=1e-7)
