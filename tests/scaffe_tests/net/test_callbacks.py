"""Callbacks before and after each layer, in a net's own passes and in those of a solver's step."""

import nets
import numpy as np
import pytest
from both_engines import needs_onednn
from google.protobuf import text_format

import scaffe
from scaffe.compute import Compute
from scaffe.errors import CallError
from scaffe.proto import NetParameter
from scaffe.training.solver import Solver

NET = """
force_backward: true
layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 4 dim: 3 } } }
layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'h'
  inner_product_param { num_output: 5 weight_filler { type: 'xavier' } } }
layer { name: 'r' type: 'ReLU' bottom: 'h' top: 'h' }
layer { name: 'b' type: 'InnerProduct' bottom: 'h' top: 'y'
  inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } }
"""
ENGINES = ["reference", pytest.param("onednn", marks=needs_onednn)]
KINDS = "before_forward", "after_forward", "before_backward", "after_backward"


def build(engine="reference"):
    return scaffe.Net(text_format.Parse(NET, NetParameter()), scaffe.TEST, compute=Compute(engine, threads=1))


@pytest.fixture
def x():
    return np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)


def note_all(net):
    """Return a list that gets (kind, layer) of each call from now on."""
    calls = []
    for kind in KINDS:
        getattr(net, kind)(lambda i, kind=kind: calls.append((kind, i)))
    return calls


def expected(forward, backward):
    """Return the calls of a pass over those layers and of one back."""
    return [(kind, i) for i in forward for kind in KINDS[:2]] + [(kind, i) for i in backward for kind in KINDS[2:]]


def test_each_is_called_with_the_layers_index(x):
    net = build()
    calls = note_all(net)
    net.forward(x=x)
    net.backward()
    assert calls == expected(range(4), reversed(range(4)))
    calls.clear()
    net.forward(start="a", end="r")
    net.backward(start="b", end="r")
    assert calls == expected([1, 2], [3, 2])
    calls.clear()
    net._forward(3, 3)
    net._backward(1, 0)
    assert calls == expected([3], [1, 0])


def test_several_are_called_in_the_order_of_adding(x):
    net, calls = build(), []
    for number in range(3):
        net.before_forward(lambda i, number=number: calls.append((i, number)))
    net.forward(x=x)
    assert calls == [(i, number) for i in range(4) for number in range(3)]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_layers_values_are_there_after_it_and_not_before(x, engine):
    net, plain, seen = build(engine), build(engine), {}
    held = net.blobs["y"].data
    net.before_forward(lambda i: seen.setdefault(("before", i), held.copy()))
    net.after_forward(lambda i: seen.setdefault(("after", i), held.copy()))
    net.after_forward(lambda i: seen.setdefault(("h", i), net.blobs["h"].data.copy()))
    net.forward(x=x)
    y = plain.forward(x=x)["y"]
    weights, bias = (blob.data for blob in plain.params["a"])
    np.testing.assert_allclose(seen["h", 1], x @ weights.T + bias, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(seen["h", 2], plain.blobs["h"].data, rtol=1e-5, atol=1e-6)
    assert not seen["before", 3].any() and not seen["after", 2].any()
    np.testing.assert_allclose(seen["after", 3], y, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(held, seen["after", 3])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("keeps", [True, False])
def test_what_a_callback_writes_is_used_by_the_layers_that_follow(x, engine, keeps):
    net = build(engine)
    held = [net.blobs[name].data for name in ("h", "y")] + [net.blobs["h"].diff] if keeps else []

    def double(i):
        if i == 2:
            net.blobs["h"].data[...] *= 2

    def triple(i):
        if i == 3:
            net.blobs["h"].diff[...] *= 3

    net.after_forward(double)
    net.after_backward(triple)
    out = net.forward(x=x)["y"]
    net.backward(y=np.ones((4, 2)))
    a, b = (net.params[name][0].data for name in "ab")
    h = np.maximum(x @ a.T, 0)
    np.testing.assert_allclose(out, 2 * h @ b.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        net.blobs["x"].diff, (3 * np.ones((4, 2)) @ b * (h > 0)) @ a, rtol=1e-5, atol=1e-6, err_msg=f"{len(held)}"
    )


CONVOLUTIONS = """
layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 4 dim: 3 dim: 8 dim: 8 } } }
layer { name: 'a' type: 'Convolution' bottom: 'x' top: 'h'
  convolution_param { num_output: 16 kernel_size: 3 weight_filler { type: 'xavier' } } }
layer { name: 'b' type: 'Convolution' bottom: 'h' top: 'y'
  convolution_param { num_output: 16 kernel_size: 3 weight_filler { type: 'xavier' } } }
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_an_array_kept_from_earlier_passes_shows_and_changes_the_values_in_a_callback(engine):
    """The engine has its values in a layout of its own, in other memory than the array's."""
    net, plain = (
        scaffe.Net(text_format.Parse(CONVOLUTIONS, NetParameter()), scaffe.TEST, compute=Compute(name, threads=1))
        for name in (engine, "reference")
    )
    seen, rng = [], np.random.default_rng(2)
    x = [rng.standard_normal((4, 3, 8, 8)) for _ in range(3)]
    kept = net.forward(blobs=["h"], x=x[0])["h"]

    def double(i):
        if i == 1:
            seen.append(kept.copy())
            kept[...] *= 2

    net.after_forward(double)
    for values in x[1:]:
        found = net.forward(x=values)["y"].copy()
        plain.forward(x=values, end="a")
        np.testing.assert_allclose(seen[-1], plain.blobs["h"].data, rtol=1e-5, atol=1e-5)
        plain.blobs["h"].data[...] *= 2
        np.testing.assert_allclose(found, plain.forward(start="b")["y"], rtol=1e-4, atol=1e-4)


def test_an_array_of_parameters_that_have_moved_changes_them_in_a_callback(x):
    net, other = build(), build()
    kept = net.params["a"][0].data
    net.share_with(other)
    assert not np.shares_memory(kept, net.params["a"][0].data)

    def grow(i):
        if i == 1:
            kept[...] += 1

    net.before_forward(grow)
    weights = other.params["a"][0].data.copy()
    net.forward(x=x)
    np.testing.assert_allclose(net.blobs["h"].data, np.maximum(x @ (weights + 1).T, 0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(other.params["a"][0].data, weights + 1)


def test_a_callbacks_error_ends_the_pass(x):
    net, calls = build(), []

    def fail(i):
        calls.append(i)
        if i == 2:
            raise ZeroDivisionError("of the callback")

    net.before_forward(fail)
    with pytest.raises(ZeroDivisionError, match="of the callback"):
        net.forward(x=x)
    assert calls == [0, 1, 2]


def test_what_can_not_be_called_is_refused():
    with pytest.raises(CallError, match="a callback must be a function of a layer's index, got ''"):
        build().after_backward("")


def test_a_net_without_callbacks_calls_its_layers_itself():
    net = build()
    assert not {"forward_layer", "backward_layer"} & vars(net).keys()
    net.after_forward(print)
    assert "backward_layer" not in vars(net)


def test_a_net_that_takes_anothers_place_takes_its_callbacks(x):
    old, new = build(), build()
    calls = note_all(old)
    new.take_callbacks(old)
    new.forward(x=x)
    new.backward()
    assert calls == expected(range(4), reversed(range(4)))


@pytest.fixture
def images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nets.write_images(tmp_path / "db", 60, (1, 8, 8))


def solver(engine="reference", instances="1", **fields):
    return Solver(
        nets.solver_with(nets.softmax_regression("db"), **fields),
        compute=Compute(engine, threads=1),
        instances=scaffe.Instances(instances, oversubscribe=True),
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_solvers_step_calls_them_in_each_of_its_passes(images, engine):
    made, plain = solver(engine, iter_size=2), solver(engine, iter_size=2)
    layers = range(len(made.net.layers))
    calls = note_all(made.net)
    made.step(2)
    plain.step(2)
    assert calls == expected(layers, reversed(layers)) * 4
    np.testing.assert_array_equal(made.net.packed.data, plain.net.packed.data)
    for one in (made, plain):
        one.close()


def test_a_test_calls_those_of_the_test_net(images):
    made = solver(test_iter=[3], test_interval=10)
    training, testing = note_all(made.net), note_all(made.test_nets[0])
    made.test_all()
    assert training == []
    assert testing == expected(range(len(made.test_nets[0].layers)), []) * 3
    made.close()


def test_of_several_instances_it_is_the_first_whose_layers_are_followed(images):
    made = solver(instances="2")
    calls = note_all(made.net)
    layers = range(len(made.net.layers))
    made.step(3)
    assert calls == expected(layers, reversed(layers)) * 3
    made.close()
