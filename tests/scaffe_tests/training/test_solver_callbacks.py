"""Callbacks and apply_update of a solver on a single rank, with and without several instances."""

from __future__ import annotations

import nets
import numpy as np
import pytest

from scaffe.errors import ScaffeError
from scaffe.parallel.instances.instances import Instances
from scaffe.training.solver import Solver
from scaffe.training.solver_callbacks import SumOverRanks


@pytest.fixture(params=[1, 2], ids=["one instance", "two instances"])
def solver(images, request):
    fields = {"base_lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "display": 2}
    given = Instances(str(request.param), oversubscribe=True)
    solver = Solver(nets.solver_with(nets.tower(images), **fields), instances=given)
    yield solver
    solver.close()


def test_functions_are_called_around_each_iterations_passes(solver):
    calls = []
    solver.add_callback(lambda: calls.append(("start", solver.iter)), lambda: calls.append(("ready", solver.iter)))
    solver.step(2)
    assert calls == [("start", 0), ("ready", 0), ("start", 1), ("ready", 1)]


def test_the_update_is_by_the_gradients_that_functions_leave(solver):
    solver.step(1)
    start = {p.label: p.blob.data.copy() for p in solver.net.parameters}

    def constant():
        for blobs in solver.net.params.values():
            for blob in blobs:
                blob.diff[...] = 2.0

    solver.add_callback(lambda: None, constant)
    solver.step(1)
    for parameter in solver.net.parameters:
        np.testing.assert_allclose(parameter.blob.data, start[parameter.label] - np.float32(0.2), rtol=1e-6, atol=1e-7)


def test_an_array_that_is_held_shows_and_takes_gradients(solver):
    gradient = solver.net.params["ip5"][1].diff
    bias = solver.net.params["ip5"][1].data
    found = []

    def ready():
        found.append(gradient.copy())
        gradient[...] = [1] + [0] * 9

    solver.add_callback(lambda: None, ready)
    before = bias.copy()
    solver.step(1)
    assert np.abs(found[0]).max() > 0
    np.testing.assert_allclose(bias - before, [-0.1] + [0] * 9, atol=1e-7)


def test_an_iteration_computes_with_what_on_start_writes(solver):
    solver.test_nets  # noqa: B018  none: the loss is of the train net
    weights, bias = solver.net.params["ip5"]

    def on_start():
        weights.data[...] = 0
        bias.data[...] = 0

    solver.add_callback(on_start, lambda: None)
    solver.step(3)
    assert solver.parts.losses.last[-1] == pytest.approx(np.log(10))


def test_a_function_can_restore_a_snapshot_and_step_runs_as_many_iterations(solver, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    solver.step(1)
    solver.snapshot()
    state, called = next(tmp_path.glob("*.solverstate")), []

    def on_start():
        called.append(solver.iter)
        if len(called) == 3:
            solver.restore(state)

    solver.add_callback(on_start, lambda: None)
    solver.step(4)
    assert called == [1, 2, 3, 2]


def test_an_object_with_both_methods_and_functions_beside_a_reduction(solver):
    calls = []

    class Both:
        def on_start(self):
            calls.append("start")

        def on_gradients_ready(self):
            calls.append("ready")

    solver.add_callback(lambda: None, lambda: calls.append("before"))
    solver.add_callback(SumOverRanks())
    solver.add_callback(Both())
    solver.step(1)
    assert calls == ["start", "before", "ready"]


def test_a_second_place_of_the_sums_changes_nothing(solver):
    calls = []
    for number in range(3):
        solver.add_callback(lambda: None, lambda number=number: calls.append(number))
        solver.add_callback(SumOverRanks())
    solver.step(1)
    assert calls == [0, 1, 2]


@pytest.mark.parametrize("given", [(3,), (lambda: None, 3), ("text", lambda: None)])
def test_anything_else_is_refused(images, given):
    solver = Solver(nets.solver_with(nets.softmax_regression(images)))
    with pytest.raises(TypeError, match="add_callback"):
        solver.add_callback(*given)
    solver.close()


def test_apply_update_leaves_the_iteration(images):
    """A gradient of 1 moves each parameter by its rate; the policy sees the iteration, which stays."""
    param = nets.solver_with(
        nets.softmax_regression(images), base_lr=0.01, momentum=0, weight_decay=0, lr_policy="step", gamma=0.1,
        stepsize=2, iter_size=2,
    )  # fmt: skip
    solver = Solver(param)
    weights = solver.net.params["ip"][0]
    for rate in (0.01, 0.01):
        before = weights.data.copy()
        weights.diff[...] = 1
        assert solver.lr == pytest.approx(rate)
        solver.apply_update()
        np.testing.assert_allclose(weights.data, before - rate / 2, atol=1e-7)
    assert solver.iter == 0
    solver.step(2)
    assert solver.lr == pytest.approx(0.001)
    solver.close()


def test_apply_update_calls_no_functions(images):
    solver, calls = Solver(nets.solver_with(nets.softmax_regression(images))), []
    solver.add_callback(lambda: calls.append("start"), lambda: calls.append("ready"))
    solver.step(1)
    solver.apply_update()
    assert calls == ["start", "ready"]
    solver.close()


def test_after_a_functions_error_apply_update_calls_no_functions_and_training_goes_on(images):
    solver, calls = Solver(nets.solver_with(nets.softmax_regression(images))), []

    def ready():
        calls.append(solver.iter)
        if len(calls) == 1:
            raise ZeroDivisionError("of the function")

    solver.add_callback(lambda: None, ready)
    with pytest.raises(ZeroDivisionError, match="of the function"):
        solver.step(1)
    solver.apply_update()
    assert calls == [0]
    solver.step(2)
    assert calls == [0, 0, 1]
    solver.close()


def test_apply_update_is_refused_where_a_rank_has_several_instances(images):
    solver = Solver(nets.solver_with(nets.tower(images)), instances=Instances("2", oversubscribe=True))
    with pytest.raises(ScaffeError, match="each rank has 2"):
        solver.apply_update()
    solver.close()
