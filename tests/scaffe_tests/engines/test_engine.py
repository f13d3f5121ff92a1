"""Every engine obeys the base: the same net by each has Reference's numbers, and whoever inherits needs no more."""

import inspect
import sys
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
from both_engines import needs_onednn
from google.protobuf import text_format
from nets import lenet, solver_with
from strict_arrays import StrictGpu

import scaffe
from scaffe import engines
from scaffe.blob import Blob, Values
from scaffe.compute import Compute
from scaffe.engine import Engine
from scaffe.engines.reference import Reference
from scaffe.errors import EngineError, LabelError, ScaffeError
from scaffe.proto import NetParameter

NET = """
force_backward: true
layer { name: "x" type: "Input" top: "x" top: "y"
  input_param { shape { dim: 4 dim: 6 } shape { dim: 4 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip" top: "ip2" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "y" top: "loss" }
"""
KINDS = {
    "Reference": ("reference", False),
    "Onednn": ("onednn", False),
    "Cupy": ("reference", True),
    "Cuda": ("auto", True),
}
LABELS = np.array([0, 1, 2, 1])


def net_by(kind):
    """Return the net with random numbers in it, computed by that class of engine."""
    engine, on_gpu = KINDS[kind]
    param = text_format.Parse(NET, NetParameter())
    net = scaffe.Net(param, scaffe.TRAIN, engine=engines.create(Compute(engine), StrictGpu() if on_gpu else None))
    assert type(net.engine).__name__ == kind and net.context.engine is net.engine
    rng = np.random.default_rng(0)
    net.blobs["x"].data[...] = rng.standard_normal((4, 6))
    net.blobs["y"].data[...] = LABELS
    for blobs in net.params.values():
        for blob in blobs:
            blob.data[...] = rng.standard_normal(blob.shape)
    return net


@pytest.fixture(params=["Reference", pytest.param("Onednn", marks=needs_onednn), "Cupy", "Cuda"])
def net(request):
    return net_by(request.param)


def pass_over(net, passes):
    """Run passes as the iteration does; return the loss of them all."""
    net.engine.enter()
    groups, loss = net.engine.groups(net, {3}), net.engine.loss(net)
    net.clear_param_diffs()
    for _ in range(passes):
        for group in groups:
            net.engine.forward(net, group)
        loss.add(passes)
        for group in reversed(groups):
            net.engine.backward(net, group)
    loss.send()
    net.engine.wait()
    return loss


def test_its_methods_take_what_the_bases_take(net):
    for name, method in inspect.getmembers(Engine, inspect.isfunction):
        if name.startswith("_"):
            continue
        ours, theirs = (inspect.signature(one).parameters for one in (getattr(type(net.engine), name), method))
        assert list(ours)[: len(theirs)] == list(theirs), name
        assert all(one.default is not one.empty for one in list(ours.values())[len(theirs) :]), name


def test_its_groups_are_all_layers_in_order_and_begin_where_asked(net):
    for starts in ((), (2,), (1, 3)):
        groups = net.engine.groups(net, starts)
        assert [i for group in groups for i in group] == list(range(len(net.layers)))
        assert {group[0] for group in groups} >= set(starts)


def test_passes_by_groups_have_the_references_loss_and_gradients(net):
    expected = net_by("Reference")
    losses = [pass_over(one, 4).value() for one in (net, expected)]  # often enough for recordings to be repeated
    np.testing.assert_allclose(*losses, rtol=1e-5)
    for name, blobs in expected.params.items():
        for found, blob in zip(net.params[name], blobs, strict=True):
            np.testing.assert_allclose(found.diff, blob.diff, rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_loss_is_the_mean_over_its_passes(net):
    whole = pass_over(net, 3).value()
    np.testing.assert_allclose(whole, net.loss(), rtol=1e-6)  # of the last pass, which is like the others


def test_a_label_that_is_no_class_shows_no_later_than_when_the_loss_is_read(net):
    net.blobs["y"].data[...] = [0, 1, 3, 1]
    with pytest.raises(LabelError, match="label 3 in row 2 is outside the classes 0 to 2"):
        pass_over(net, 1).value()


def test_passes_after_sharing_compute_with_the_other_nets_parameters(net):
    other = net_by("Reference" if net.engine.in_host_memory else "Cupy")
    for blobs in other.params.values():
        for blob in blobs:
            blob.data[...] *= 2
    pass_over(net, 4)  # recordings have the addresses of the net's own
    net.share_with(other)
    other.params["ip"][1].data[...] += 1  # on the host
    found, expected = (pass_over(one, 2).value() for one in (net, other))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["Cupy", "Cuda"])
def test_a_thread_that_enters_takes_the_gpu_and_waits_for_it(kind, monkeypatch):
    engine, calls = net_by(kind).engine, []
    for name in ("use", "wait"):
        monkeypatch.setattr(engine.gpu, name, lambda name=name: calls.append(name))
    engine.enter()
    engine.wait()
    assert calls == ["use", "wait"]


def test_graphs_are_refused_for_a_net_whose_shapes_change():
    shapes = "input_param { shape { dim: 4 } shape { dim: 4 } }"
    text = f'layer {{ name: "x" type: "Input" top: "x" top: "y" {shapes} }}'
    text += 'layer { name: "some" type: "Filter" bottom: "x" bottom: "y" top: "some" }'
    param = text_format.Parse(text, NetParameter())
    with pytest.raises(EngineError, match="--graphs on takes a GPU, engine auto, and a net whose shapes stay"):
        scaffe.Net(param, scaffe.TEST, engine=engines.create(Compute(graphs="on"), StrictGpu()))
    assert scaffe.Net(param, scaffe.TEST, engine=engines.create(gpu=StrictGpu())).engine.graphs is None


def test_a_wrong_label_that_is_reported_later_is_class_0_until_then():
    net = net_by("Cuda")
    net.blobs["y"].data[...] = [0, 1, 7, 1]
    labels = net.blobs["y"]
    good = labels.array < 3
    assert net.engine.sound_labels(net.layers[-1], labels, good, 3, None).get().tolist() == [0, 1, 0, 1]


def test_a_wrong_label_of_a_pixel_is_in_its_samples_row():
    labels = Blob((3, 2, 2))
    labels.data[2, 0, 1] = 9
    with pytest.raises(LabelError, match="label 9 in row 2 is"):
        Reference().sound_labels(SimpleNamespace(name="loss"), labels, labels.array.reshape(-1) < 5, 5, None)


def test_the_memory_of_values_is_that_of_their_array_and_none_has_none():
    engine, array = Reference(), np.zeros((2, 3), np.float32)
    assert engine.memory_of(Values(array)) == {array.ctypes.data: 24}
    assert engine.memory_of(Values()) == {}


def test_scratch_memory_of_a_name_is_used_in_turn_and_stays(net):
    first = net.engine.scratch("columns", (4, 3), np.float32)
    version = net.engine.scratch_version
    again, other = (net.engine.scratch(name, (6,), np.float32) for name in ("columns", "other"))
    first[...], other[...] = 1, 2
    again[...] = 3
    assert first.shape == (4, 3) and float(first.reshape(-1)[0]) == 3 and float(other[0]) == 2
    assert net.engine.scratch_version == version + 1  # for the other one
    net.engine.scratch("columns", (100,), np.float32)
    assert net.engine.scratch_version == version + 2


def test_an_engine_that_only_inherits_trains_to_the_references_bits(images, tmp_path, monkeypatch):
    (tmp_path / "engine_of_mine.py").write_text(
        "from scaffe.engines.reference import Reference\n\n\nclass Mine(Reference):\n    name = 'mine'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    mine = import_module("engine_of_mine").Mine
    try:
        trained = []
        for kind in (Reference, mine):
            monkeypatch.setattr(engines, "create", lambda compute, gpu=None, kind=kind: kind())
            solver = scaffe.Solver(solver_with(lenet(images, batch=8, dropout=True), iter_size=2))
            assert type(solver.net.engine) is kind
            solver.step(3)
            trained.append((solver.net.packed.data.copy(), list(solver.parts.losses.last)))
            solver.close()
    finally:
        sys.modules.pop("engine_of_mine")
    np.testing.assert_array_equal(trained[0][0], trained[1][0])
    assert trained[0][1] == trained[1][1] and np.isfinite(trained[0][0]).all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"numbers": "bf16"}, r"compute=Compute\(numbers=\.\.\.\)"),
        ({"threads": 2}, r"compute=Compute\(threads="),
        ({"gpu": None}, r"^gpu= has moved: write engine=scaffe\.engines\.create\(Compute\(\.\.\.\), gpu\)$"),
    ],
)
def test_a_nets_old_keywords_name_the_new_one(given, said):
    with pytest.raises(ScaffeError, match=said):
        scaffe.Net(NetParameter(), scaffe.TRAIN, **given)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        scaffe.Net(NetParameter(), scaffe.TRAIN, colour=1)


def test_a_number_format_in_place_of_the_record_is_an_error():
    with pytest.raises(ScaffeError, match="Compute"):
        scaffe.Net(NetParameter(), scaffe.TRAIN, compute="bf16")
