"""A layer and a solver that are each added as one file are found, by prototxt type and in Python.

No name here is one that somebody may add.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from google.protobuf import text_format

import scaffe
from scaffe import layers, solvers
from scaffe.compute import Compute
from scaffe.layers import layer
from scaffe.proto import NetParameter, SolverParameter

LAYER = """
from scaffe.layers.elementwise import Elementwise
from scaffe.layers.layer import register


class OfOurs(Elementwise):
    def f(self, x, out):
        self.xp.multiply(x, self.xp.tanh(self.xp.log1p(self.xp.exp(x))), out=out)


register("OfOurs", OfOurs)
"""
SOLVER = """
import numpy as np
from scaffe.solvers import register
from scaffe.solvers.rule import Rule


class SignOfOurs(Rule):
    kind = "SignOfOurs"
    slots = 0

    def step(self, diff, history, scratch, rate, iteration):
        np.sign(diff, out=diff)
        diff *= np.float32(rate)


register(SignOfOurs)
"""
NET = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 3 } } }
layer { name: "of_ours" type: "OfOurs" bottom: "x" top: "y" }
"""
LEARNING = """
layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 2 } } }
layer { name: "loss" type: "Reduction" bottom: "p" top: "loss" loss_weight: 3 }
"""


@contextmanager
def added(package: ModuleType, table: dict, name: str, source: str, folder: Path) -> Iterator[None]:
    """Put a module into a package, as far as imports can tell, and take it out again."""
    (folder / f"{name}.py").write_text(source)
    path, before = list(package.__path__), dict(table)
    package.__path__ = [*path, str(folder)]
    try:
        package.discover()
        yield
    finally:
        package.__path__ = path
        table.clear()
        table.update(before)
        sys.modules.pop(f"{package.__name__}.{name}", None)


def test_a_layer_is_one_file(tmp_path) -> None:
    param = text_format.Parse(NET, NetParameter())
    with pytest.raises(scaffe.ScaffeError, match="unknown type 'OfOurs'"):
        scaffe.Net(param, scaffe.TEST)
    with added(layers, layer._types, "of_ours", LAYER, tmp_path):
        x = np.array([-1, 0, 2], np.float32)
        y = scaffe.Net(param, scaffe.TEST, compute=Compute("reference")).forward(x=x)["y"]
        assert "OfOurs" in dir(layers) and layers.OfOurs().function.type_name == "OfOurs"
    np.testing.assert_allclose(y, x * np.tanh(np.log(1 + np.exp(x))), rtol=1e-6)


def test_a_solver_is_one_file(tmp_path) -> None:
    param = SolverParameter(type="SignOfOurs", base_lr=0.25, lr_policy="fixed", max_iter=2, snapshot_after_train=False)
    text_format.Parse(LEARNING, param.net_param)
    with added(solvers, solvers._rules, "sign_of_ours", SOLVER, tmp_path):
        solver = scaffe.Solver(param)
        solver.step(2)
    np.testing.assert_array_equal(solver.net.params["p"][0].data, [-0.5, -0.5])


def test_two_modules_can_not_register_one_layer_type(tmp_path) -> None:
    another = LAYER.replace('"OfOurs"', '"ReLU"')
    with (
        pytest.raises(ValueError, match=r"layers\.relu and scaffe\.layers\.of_ours both register layer type 'ReLU'"),
        added(layers, layer._types, "of_ours", another, tmp_path),
    ):
        pass
    assert layer._types["ReLU"][layer.REFERENCE].__module__ == "scaffe.layers.relu"


def test_two_modules_can_not_register_one_solver_type(tmp_path) -> None:
    another = SOLVER.replace('"SignOfOurs"', '"SGD"')
    with (
        pytest.raises(ValueError, match=r"sgd and scaffe\.solvers\.sign_of_ours both register solver type 'SGD'"),
        added(solvers, solvers._rules, "sign_of_ours", another, tmp_path),
    ):
        pass
    assert solvers._rules["SGD"].__module__ == "scaffe.solvers.sgd"
