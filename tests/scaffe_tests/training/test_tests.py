"""A test of one net: the rank's record says which net it is, by which the watch finds the names of its layers."""

from __future__ import annotations

import nets
import pytest

from scaffe.compute import Compute
from scaffe.monitor.record import unpacked
from scaffe.net.net import Net
from scaffe.parallel.watch.report import LayerNames
from scaffe.training import tests
from scaffe.training.solver import Solver

ACCURACY = """
layer {
  name: "accuracy" type: "Accuracy" bottom: "ip5" bottom: "label" top: "accuracy" include { phase: TEST }
}
"""


def test_the_record_names_the_layers_of_a_test_net_that_has_more_than_the_train_net(images, monkeypatch) -> None:
    """Without the net's number a watch that looked in the last layer failed with an IndexError."""
    param = nets.solver_with(nets.tower(images) + ACCURACY, test_iter=[1], test_interval=100)
    solver = Solver(param, compute=Compute(engine="reference"))
    solver.step(2)
    names, forward, said = LayerNames([solver.net, *solver.test_nets]), Net.forward_layer, []

    def note(net: Net, i: int) -> None:
        row = unpacked(solver.world.record.row)
        said.append((names.has(row), names.is_reading(row), names.place(row)))
        forward(net, i)

    monkeypatch.setattr(Net, "forward_layer", note)
    (batch,) = tests.run_one(solver.job, solver.parts, 0)
    layers = [layer.label for layer in solver.test_nets[0].layers]
    assert len(layers) > len(solver.net.layers) and batch.outputs.keys() == {"accuracy", "loss"}
    reads = "test net #0, waiting for records of layer images, iteration 2"
    computes = [f"test net #0, layer {name}, iteration 2" for name in layers[1:]]
    assert said == [(True, True, reads), *((True, False, one) for one in computes)]
    solver.close()


@pytest.mark.parametrize("k", [0, 1])
def test_a_solver_with_several_test_nets_runs_the_one_that_is_asked_for(images, k: int) -> None:
    param = nets.solver_with(nets.tower(images), test_iter=[2, 3], test_interval=100)
    del param.test_state[:]
    param.test_state.add(stage=["a"])
    param.test_state.add(stage=["b"])
    solver = Solver(param)
    assert [batch.number for batch in tests.run_one(solver.job, solver.parts, k)] == [*range(2 + k)]
    assert unpacked(solver.world.record.row)[1] == k + 1
    solver.close()
