"""Instances of a resumed run go on where those of the snapshot were; those of a run share their reordered weights."""

from pathlib import Path

import nets
import pytest
from both_engines import needs_onednn

from scaffe.blobs import shared_forms
from scaffe.compute import Compute
from scaffe.parallel.instances.instances import Instances
from scaffe.training.solver import Solver

CONV = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 4 dim: 64 dim: 6 dim: 6 } shape { dim: 4 } data_filler { type: "uniform" }
  data_filler { type: "constant" value: 1 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param {
  num_output: 64 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "conv2" type: "Convolution" bottom: "conv" top: "conv2" convolution_param {
  num_output: 64 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv2" top: "ip" inner_product_param {
  num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def given(n: int) -> Instances:
    return Instances(n, gather="slices", oversubscribe=True)


@pytest.mark.parametrize("n", [1, 3])
def test_a_resumed_run_reads_and_draws_on_in_all_instances(tmp_path: Path, n: int) -> None:
    nets.write_images(tmp_path / "db")
    param = nets.solver_with(nets.tower(tmp_path / "db"), snapshot_prefix=str(tmp_path / "snap"), random_seed=-1)
    whole = Solver(param, instances=given(3))
    whole.step(3)
    state = whole.snapshot()
    whole.step(4)
    resumed = Solver(param, instances=given(n))
    resumed.restore(state)
    resumed.step(4)
    ours, expected = resumed.net.packed.data, whole.net.packed.data
    assert abs(ours - expected).max() <= 1e-5 * abs(expected).max()
    assert n != 3 or ours.tobytes() == expected.tobytes()
    whole.close()
    resumed.close()


@needs_onednn
def test_each_weight_is_reordered_once_in_an_iteration_for_all_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    complete = shared_forms.SharedForm.complete

    def counted(form, version, make):
        complete(form, version, lambda part: made.append((id(form), part)) or make(part))

    monkeypatch.setattr(shared_forms.SharedForm, "complete", counted)
    solver = Solver(nets.solver_with(CONV), compute=Compute(engine="onednn"), instances=given(3))
    solver.step(1)
    first = len(made)
    assert first == len(set(made)) > 0
    solver.step(2)
    assert len(made) == 3 * first
    solver.close()
