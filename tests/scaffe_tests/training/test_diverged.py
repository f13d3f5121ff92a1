"""Values that are not finite end training within an iteration, told by layer, and stand in no file."""

import re
from math import inf, nan

import numpy as np
import pytest
from bad_input import Refused, edit, train, trainable
from both_engines import why_missing
from nets import lenet, solver_with, tower
from poison import poison
from strict_arrays import StrictGpu

import scaffe
from scaffe import solvers
from scaffe.compute import Compute
from scaffe.errors import DivergedError, SnapshotError, WeightsError
from scaffe.parallel.world import open_world
from scaffe.proto import SolverParameter
from scaffe.proto.files import read_solver_state, read_weights

FIELDS = {"AdaGrad": {"momentum": 0}, "RMSProp": {"momentum": 0}, "LARS": {"lars_trust": 0.01}}
ENGINES = ["reference", "cuda", *([] if why_missing() else ["onednn"])]
NORMED = """
layer {
  name: "x" type: "DummyData" top: "x"
  dummy_data_param { shape { dim: 4 dim: 3 } data_filler { type: "gaussian" } }
}
layer {
  name: "ip" type: "InnerProduct" bottom: "x" top: "y"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } }
}
layer { name: "bn" type: "BatchNorm" bottom: "y" top: "z" }
layer { name: "loss" type: "EuclideanLoss" bottom: "z" bottom: "x" top: "loss" }
"""


@pytest.fixture
def make(tmp_path):
    """Return a function that makes solvers, with snapshots in a folder of their own."""
    world, made = open_world(), []

    def make(net, engine="reference", **fields):
        world.take_gpu(StrictGpu() if engine == "cuda" else None)
        param = solver_with(net, snapshot_prefix=str(tmp_path / "snap"), **fields)
        made.append(
            scaffe.Solver(
                param, world=world, compute=Compute(engine="auto" if engine == "cuda" else engine, graphs="off")
            )
        )
        world.take_gpu(None)
        return made[-1]

    yield make
    for solver in made:
        solver.close()


def numbers(path):
    """Return all numbers of a snapshot's file."""
    if path.suffix == ".solverstate":
        blobs = read_solver_state(path).history
    else:
        blobs = [blob for layer in read_weights(path).layer for blob in layer.blobs]
    return np.concatenate([blob.data for blob in blobs])


# Training.


@pytest.mark.parametrize("rate", [100, 1e6, 1e30])
@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "cuda"])  # whose stand-in is slow
def test_a_rate_that_is_too_large_is_told_as_soon_as_values_are_not_finite(make, images, tmp_path, engine, rate):
    solver = make(lenet(images), engine, base_lr=rate, snapshot=1)
    with pytest.raises(DivergedError, match=re.escape(f", learning rate {rate:g}: ")) as caught:
        for _ in range(60):
            solver.step(1)
            assert np.isfinite(solver.net.packed.host_data()).all()
    layer, iteration = re.match(r"layer '(\w+)': .* iteration (\d+),", str(caught.value)).groups()
    assert layer in solver.net.layer_dict
    written = list(tmp_path.glob("snap_iter*"))
    assert len(written) == 2 * int(iteration)
    assert all(np.isfinite(numbers(path)).all() for path in written)


@pytest.mark.parametrize("kind", solvers.kinds())
@pytest.mark.parametrize("engine", ENGINES)
def test_a_gradient_that_is_not_finite_is_told_by_layer_iteration_and_rate(make, images, engine, kind):
    solver = make(tower(images), engine, type=kind, **FIELDS.get(kind, {}))
    poison(solver, "ip3", 2)
    said = "^layer 'ip3': parameter 0, or its history, is not finite at iteration 2, learning rate 0.01: the update was"
    with pytest.raises(DivergedError, match=said):
        solver.step(9)
    assert solver.iter == 3


@pytest.mark.parametrize("kind", ["AdaDelta", "AdaGrad", "Adam", "RMSProp"])
@pytest.mark.parametrize("engine", ENGINES)
def test_history_that_is_not_finite_is_told_where_the_values_still_are(make, images, engine, kind):
    """The square of such a gradient is infinite, so that it changes no value, and no later one does."""
    solver = make(tower(images), engine, type=kind, **FIELDS.get(kind, {}))
    poison(solver, "ip3", 0, 1e25)
    with pytest.raises(DivergedError, match="layer 'ip3': parameter 0, or its history, is not finite at iteration 0"):
        solver.step(1)
    assert np.isfinite(solver.net.packed.host_data()).all()


def test_no_test_is_made_with_values_that_are_not_finite(make, images):
    solver = make(tower(images), test_iter=[1], test_interval=2, test_initialization=False)
    poison(solver, "ip3", 1)
    with pytest.raises(DivergedError, match="at iteration 1,"):
        solver.step(3)
    assert not solver.job.tests_done


@pytest.mark.parametrize("fields", [{"iter_size": 2}, {"clip_gradients": 0.1}, {"regularization_type": "L1"}], ids=str)
@pytest.mark.parametrize("engine", ENGINES)
def test_nor_do_other_fields_hide_it(make, images, engine, fields):
    solver = make(tower(images), engine, **fields)
    poison(solver, "ip5", 0, inf)
    with pytest.raises(DivergedError, match="layer 'ip5': parameter 0, or its history, is not finite at iteration 0"):
        solver.step(1)


@pytest.mark.parametrize("engine", ENGINES)
def test_training_goes_on_once_the_values_are_finite_again(make, images, engine):
    solver = make(tower(images), engine)
    before = solver.net.packed.host_data().copy()
    poison(solver, "ip1", 0)
    with pytest.raises(DivergedError):
        solver.step(1)
    solver.net.packed.set_data(before)
    solver.parts.rule.history[0][...] = 0
    solver.step(2)
    assert np.isfinite(solver.net.packed.host_data()).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_statistics_that_are_not_finite_are_told(make, engine):
    solver = make(NORMED, engine)
    solver.step(1)
    solver.net.params["bn"][1].data[...] = nan
    with pytest.raises(DivergedError, match="layer 'bn': parameter 1, or its history, is not finite at iteration 1, "):
        solver.step(5)
    assert solver.iter == 2


def test_a_last_loss_that_is_not_finite_is_told(make):
    constant = 'dummy_data_param { shape { dim: 1 dim: 1 } data_filler { type: "constant" value: %s } }'
    net = f"""
        layer {{ name: "x" type: "DummyData" top: "x" {constant % "1"} }}
        layer {{ name: "t" type: "DummyData" top: "t" {constant % "-1"} }}
        layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param {{ num_output: 1 }} }}
        layer {{ name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "t" top: "loss" }}
    """
    solver = make(net, base_lr=1e22, max_iter=1, display=1)
    said = "layer 'loss': the loss is not finite at iteration 1, learning rate 1e.22: no update was applied"
    with pytest.raises(DivergedError, match=said):
        solver.solve()


def test_a_rate_that_becomes_no_number_is_told(make, images):
    solver = make(tower(images), lr_policy="exp", gamma=1e30)
    solver.job.iter = 11
    said = "lr_policy 'exp': the learning rate of iteration 11 is not a finite number"
    with pytest.raises(DivergedError, match=said):
        solver.step(1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return trainable(tmp_path, monkeypatch)


def test_the_last_update_is_looked_at_too(folder, capsys):
    edit("solver.prototxt", "base_lr: 0.01", "base_lr: 3e38")
    edit("solver.prototxt", "max_iter: 4", "max_iter: 1")
    edit("net.prototxt", 'top: "ip"', 'top: "ip" param { lr_mult: 10 }')
    line = Refused(folder, capsys)(*train())
    assert line.startswith("scaffe: layer 'ip': parameter 0, or its history, is not finite at iteration 0, ")


# Files.


@pytest.mark.parametrize("end", ["caffemodel", "solverstate"])
@pytest.mark.parametrize("form", [SolverParameter.BINARYPROTO, SolverParameter.HDF5])
def test_no_snapshot_is_written_of_values_or_history_that_are_not_finite(make, images, tmp_path, form, end):
    solver = make(tower(images), snapshot_format=form)
    solver.step(1)
    (solver.net.packed.data if end == "caffemodel" else solver.parts.rule.history[0])[-20] = nan
    with pytest.raises(SnapshotError, match=r"layer 'ip5': the \w+ of parameter 0 is not finite, so no file is"):
        solver.snapshot()
    assert not list(tmp_path.glob("snap_iter*"))


def test_nor_of_gradients(make, images, tmp_path):
    solver = make(tower(images), snapshot_diff=True)
    solver.net.params["ip5"][0].diff[-1] = inf
    with pytest.raises(SnapshotError, match="layer 'ip5': the diff of parameter 0 is not finite, so no file is"):
        solver.snapshot()
    assert not list(tmp_path.glob("snap_iter*"))


def test_no_weights_are_written_that_are_not_finite(make, tmp_path):
    net = make(NORMED).net
    net.params["bn"][0].data[1] = inf
    for name in ("w.caffemodel", "w.caffemodel.h5"):
        with pytest.raises(SnapshotError, match="layer 'bn': the data of parameter 0 is not finite"):
            net.save(tmp_path / name)
    assert not list(tmp_path.glob("w*"))


@pytest.mark.parametrize("end", ["caffemodel", "solverstate"])
@pytest.mark.parametrize("form", [SolverParameter.BINARYPROTO, SolverParameter.HDF5])
def test_no_file_is_read_that_holds_values_that_are_not_finite(make, images, monkeypatch, form, end):
    """The files' checksums are those of such values, as if another program had written them."""
    solver = make(tower(images), snapshot_format=form)
    monkeypatch.setattr("scaffe.files.weights.check_layers", lambda *_: None)
    monkeypatch.setattr("scaffe.training.snapshots.check_history", lambda *_: None)
    packed = solver.net.packed
    i = next(i for i, parameter in enumerate(packed.parameters) if parameter.label == "ip2[0]")
    spoilt = packed.view(packed.data if end == "caffemodel" else solver.parts.rule.history[0], i)
    spoilt[3, 5] = nan
    state = solver.snapshot()
    spoilt[3, 5] = 0
    before = packed.data.copy()
    with pytest.raises(
        WeightsError, match=r"(layer 'ip2', blob 0|history of ip2\[0\]): holds a value that is not finite"
    ):
        solver.restore(state)
    assert np.array_equal(packed.data, before)
