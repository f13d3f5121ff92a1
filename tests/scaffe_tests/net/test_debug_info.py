"""The lines of `debug_info: true`: Caffe's, with the numbers that numpy finds in the blobs, at no change of a bit."""

from __future__ import annotations

import logging
import re
from datetime import datetime

import nets
import numpy as np
import pytest
from both_engines import needs_onednn
from google.protobuf import text_format

import scaffe
from scaffe.compute import Compute
from scaffe.monitor.log import GlogFormatter
from scaffe.monitor.read_log import LogReader
from scaffe.parallel.instances.instances import Instances
from scaffe.proto import NetParameter
from scaffe.training.solver import Solver

NET = """
debug_info: true
force_backward: true
layer { name: 'in' type: 'Input' top: 'x' top: 't' input_param {
  shape { dim: 4 dim: 16 dim: 8 dim: 8 } shape { dim: 4 dim: 5 } } }
layer { name: 'conv' type: 'Convolution' bottom: 'x' top: 'c' param { name: 'w' } convolution_param {
  num_output: 16 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } bias_filler { type: 'constant' value: 0.1 } } }
layer { name: 'relu' type: 'ReLU' bottom: 'c' top: 'c' }
layer { name: 'norm' type: 'BatchNorm' bottom: 'c' top: 'n' }
layer { name: 'scale' type: 'Scale' bottom: 'n' top: 'n' scale_param { filler { value: 1.5 } bias_term: true } }
layer { name: 'relu2' type: 'ReLU' bottom: 'n' top: 'n' }
layer { name: 'sum' type: 'Eltwise' bottom: 'n' bottom: 'c' top: 's' }
layer { name: 'relu3' type: 'ReLU' bottom: 's' top: 's' }
layer { name: 'again' type: 'Convolution' bottom: 's' top: 'd' param { name: 'w' } convolution_param {
  num_output: 16 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } } }
layer { name: 'ip' type: 'InnerProduct' bottom: 'd' top: 'y' propagate_down: true
  inner_product_param { num_output: 5 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'EuclideanLoss' bottom: 'y' bottom: 't' propagate_down: true propagate_down: false }
"""
ENGINES = ["reference", pytest.param("onednn", marks=needs_onednn)]


def build(text=NET, engine="reference"):
    net = scaffe.Net(text_format.Parse(text, NetParameter()), scaffe.TRAIN, compute=Compute(engine, threads=1))
    rng = np.random.default_rng(5)
    for name in net.inputs:
        net.blobs[name].data[...] = rng.standard_normal(net.blobs[name].shape)
    return net


def mean(values):
    return f"{np.abs(values).mean(dtype=np.float64):.6g}"


def expected_lines():
    """Return the lines as numpy finds them, one layer after the other, in a net without debug info."""
    net, lines = build(NET.replace("debug_info: true", "")), []
    for i, (layer, node) in enumerate(zip(net.layers, net.nodes, strict=True)):
        net._forward(i, i)
        for name, blob in zip(node.tops, net.tops[i], strict=True):
            lines.append(f"    [Forward] Layer {layer.name}, top blob {name} data: {mean(blob.data)}")
        for k, blob in enumerate(layer.blobs):
            shown = "w" if k == 0 and layer.type == "Convolution" else k
            lines.append(f"    [Forward] Layer {layer.name}, param blob {shown} data: {mean(blob.data)}")
    for i in reversed(range(len(net.layers))):
        layer, node = net.layers[i], net.nodes[i]
        net._backward(i, i)
        for name, blob, down in zip(node.bottoms, net.bottoms[i], node.down, strict=True):
            if node.backward and down:
                lines.append(f"    [Backward] Layer {layer.name}, bottom blob {name} diff: {mean(blob.diff)}")
        for k, blob in enumerate(layer.blobs):
            if layer.param_propagate_down[k]:
                lines.append(f"    [Backward] Layer {layer.name}, param blob {k} diff: {mean(blob.diff)}")
    data, diff = (np.concatenate([getattr(p.blob, w).ravel() for p in net.parameters]) for w in ("data", "diff"))
    one, two = ([np.linalg.norm(v.astype(np.float64), order) for v in (data, diff)] for order in (1, 2))
    told = "L1 norm = ({:.6g}, {:.6g}); L2 norm = ({:.6g}, {:.6g})".format(*one, *two)
    return [*lines, f"    [Backward] All net params (data, diff): {told}"]


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO)
    return lambda: [record.getMessage() for record in caplog.records if record.getMessage().startswith("    [")]


def numbers(lines):
    found = [[float(n) for n in re.findall(r"(?<=[:(, ])[-\d.]+(?:e[-+]\d+)?\b(?=[,);]|$)", line)] for line in lines]
    return np.array([n for one in found for n in one])


@pytest.mark.parametrize("engine", ENGINES)
def test_the_lines_are_caffes_with_the_blobs_numbers(said, engine):
    net = build(engine=engine)
    net.forward()
    net.backward()
    lines, expected = said(), expected_lines()
    if engine == "reference":
        assert lines == expected
    form = [re.sub(r"[-\d.]+(e[-+]\d+)?([,);]|$)", "N", line) for line in lines]
    assert form == [re.sub(r"[-\d.]+(e[-+]\d+)?([,);]|$)", "N", line) for line in expected]
    np.testing.assert_allclose(numbers(lines), numbers(expected), rtol=2e-4, atol=1e-7)


def test_the_norms_are_an_error_as_in_caffe_and_no_warning_to_a_reader(caplog, said):
    caplog.set_level(logging.INFO)
    net = build()
    net.forward()
    net.backward()
    records = [record for record in caplog.records if record.getMessage().startswith("    [")]
    assert [r.levelname for r in records if r.levelname != "INFO"] == ["ERROR"]
    reader = LogReader(datetime.now().year)
    reader.feed("".join(f"{GlogFormatter().format(record)}\n" for record in records).encode())
    assert reader.lines == len(records)
    assert not reader.warnings and not reader.error


def test_a_net_without_parameters_and_one_without_debug_info(said):
    relu = "layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 3 } } }"
    relu += "layer { name: 'r' type: 'ReLU' bottom: 'x' top: 'y' }"
    build(relu).forward()
    assert not said()
    net = build(f"debug_info: true force_backward: true {relu}")
    net.forward()
    net.backward()
    norms = "    [Backward] All net params (data, diff): L1 norm = (0, 0); L2 norm = (0, 0)"
    assert [line.split(":")[0] for line in said()[:3]] == [
        "    [Forward] Layer in, top blob x data",
        "    [Forward] Layer r, top blob y data",
        "    [Backward] Layer r, bottom blob x diff",
    ]
    assert said()[-1] == norms


TRAINED = (
    NET.replace("debug_info: true\nforce_backward: true", "")
    .replace("layer { name: 'in' type: 'Input' top: 'x' top: 't' input_param {\n", "")
    .replace("  shape { dim: 4 dim: 16 dim: 8 dim: 8 } shape { dim: 4 dim: 5 } } }\n", "")
    .replace("'EuclideanLoss'", "'SoftmaxWithLoss' top: 'loss'")
)


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    return nets.write_images(tmp_path_factory.mktemp("debug") / "db", 24, (16, 8, 8), 5)


def solver_over(db, *, instances=1, engine="auto", **fields):
    data = f"""layer {{ name: 'in' type: 'Data' top: 'x' top: 't' transform_param {{ scale: 0.0078125 }}
        data_param {{ source: '{db}' batch_size: 8 backend: LMDB }} }}"""
    compute = Compute(engine, threads=1, plan="fixed", deterministic=True)
    return Solver(nets.solver_with(data + TRAINED, **fields), compute=compute, instances=Instances(n=instances))


def learned(solver):
    """Return copies of the learned parameters by layer and index."""
    return {(p.layer, p.index): p.blob.data.copy() for p in solver.net.parameters if not p.statistic}


@pytest.mark.parametrize(
    ("instances", "engine", "iter_size"),
    [(1, "reference", 1), pytest.param(1, "onednn", 2, marks=needs_onednn), (2, "auto", 1)],
)
def test_a_training_shows_displayed_iterations_and_keeps_its_bits(db, said, instances, engine, iter_size):
    given = {"instances": instances, "engine": engine, "iter_size": iter_size, "display": 2}
    plain = solver_over(db, **given)
    plain.step(3)
    assert not said()
    shown = solver_over(db, debug_info=True, **given)
    shown.step(2)
    first, before = said(), learned(shown)
    shown.step(1)
    assert shown.net.packed.data.tobytes() == plain.net.packed.data.tobytes()
    check_iteration(first, iter_size)
    second = said()[len(first) :]  # of iteration 2: there is no line of iteration 1
    check_iteration(second, iter_size)
    check_updates(second, before, learned(shown))
    plain.close()
    shown.close()


def check_iteration(lines, iter_size):
    kinds = [line.split("]")[0].strip(" [") for line in lines]
    turns = [kind for kind, before in zip(kinds, ["", *kinds], strict=False) if kind != before]
    assert turns == ["Forward", "Backward"] * iter_size + ["Update"]
    assert sum("All net params" in line for line in lines) == iter_size


def check_updates(lines, before, after):
    """Assert that the lines have the values before the update, and what it subtracted."""
    updates = [line for line in lines if "[Update]" in line]
    assert len(updates) == len(before)
    for line, (layer, index) in zip(updates, before, strict=True):
        name = "w" if (layer, index) == ("conv", 0) else index
        found = re.fullmatch(rf"    \[Update\] Layer {layer}, param {name} data: (\S+); diff: (\S+)", line)
        old, new = (values[layer, index].astype(np.float64) for values in (before, after))
        assert float(found[1]) == pytest.approx(np.abs(old).mean(), rel=1e-5)
        assert float(found[2]) == pytest.approx(np.abs(old - new).mean(), rel=1e-3, abs=1e-9)


@pytest.mark.parametrize(("display", "told"), [(0, True), (1, False)])
def test_without_display_a_line_says_that_nothing_is_shown(db, caplog, display, told):
    caplog.set_level(logging.INFO)
    solver_over(db, debug_info=True, display=display).close()
    assert ("debug_info shows tests alone" in caplog.text) == told


def test_the_field_of_a_recurrent_layer_has_no_effect_which_is_said(caplog):
    caplog.set_level(logging.INFO)
    build("""layer { name: 'in' type: 'Input' top: 'x' top: 'c' input_param {
        shape { dim: 2 dim: 3 dim: 4 } shape { dim: 2 dim: 3 } } }
        layer { name: 'lstm' type: 'LSTM' bottom: 'x' bottom: 'c' top: 'y'
        recurrent_param { num_output: 2 debug_info: true } }""")
    assert "debug_info of layer 'lstm' has no effect" in caplog.text
