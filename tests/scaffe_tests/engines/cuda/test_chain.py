"""BatchNorm with the Scale, the addition and the ReLU behind it, computed at once: the numbers of layer by layer."""

from itertools import product

import numpy as np
import pytest
from cudnn_gpu import gpu_with
from google.protobuf import text_format
from host_kernels import Kernel
from strict_arrays import StrictGpu

import scaffe
from scaffe import engines
from scaffe.compute import Compute
from scaffe.engines.cuda.graphs import WARM_UP
from scaffe.proto import NetParameter

INPUT = 'force_backward: true layer { name: "x" type: "Input" top: "x" input_param { shape { DIMS } } }\n'
CONV = """layer { name: "NAME" type: "Convolution" bottom: "BOTTOM" top: "NAME"
  convolution_param { num_output: 8 kernel_size: 1 bias_term: false weight_filler { type: "gaussian" std: 0.4 } } }\n"""
NORM = """layer { name: "bn_NAME" type: "BatchNorm" bottom: "NAME" top: "TOP" batch_norm_param { eps: 0.01 } }
layer { name: "scale_NAME" type: "Scale" bottom: "TOP" top: "TOP" scale_param { bias_term: true
  filler { type: "gaussian" std: 1 } bias_filler { type: "gaussian" std: 0.2 } } }\n"""
RELU = 'layer { name: "relu_NAME" type: "ReLU" bottom: "NAME" top: "NAME" }\n'
SUM = 'layer { name: "e" type: "Eltwise" bottom: "A" bottom: "B" top: "e" }\n'
END = """layer { name: "end" type: "Convolution" bottom: "BOTTOM" top: "end"
  convolution_param { num_output: 3 kernel_size: 1 weight_filler { type: "gaussian" std: 0.1 } } }\n"""


def conv(name, bottom):
    return CONV.replace("NAME", name).replace("BOTTOM", bottom)


def norm(name, top):
    return NORM.replace("NAME", name).replace("TOP", top)


def relu(name):
    return RELU.replace("NAME", name)


def single(in_place):
    top = "a" if in_place else "y"
    return conv("a", "x") + norm("a", top) + relu(top) + END.replace("BOTTOM", top)


def unscaled(in_place):
    top = "a" if in_place else "y"
    lines = norm("a", top).splitlines(keepends=True)[0]
    return conv("a", "x") + lines + relu(top) + END.replace("BOTTOM", top)


def shortcut(in_place):
    tops = ("a", "b") if in_place else ("ya", "yb")
    text = conv("a", "x") + norm("a", tops[0]) + relu(tops[0]) + conv("b", tops[0]) + norm("b", tops[1])
    return text + SUM.replace("A", tops[0]).replace("B", tops[1]) + relu("e") + END.replace("BOTTOM", "e")


def projection(in_place):
    tops = ("a", "b") if in_place else ("ya", "yb")
    text = conv("a", "x") + norm("a", tops[0]) + conv("b", "x") + norm("b", tops[1])
    return text + SUM.replace("A", tops[0]).replace("B", tops[1]) + relu("e") + END.replace("BOTTOM", "e")


NETS = {"single": single, "unscaled": unscaled, "shortcut": shortcut, "projection": projection}
EACH = [*product(NETS, (True, False))]


def net_of(name, in_place, gpu, numbers="float32", shape=(3, 4, 5, 3), graphs="off", coeffs=()):
    dims = " ".join(f"dim: {size}" for size in shape)
    param = text_format.Parse(INPUT.replace("DIMS", dims) + NETS[name](in_place), NetParameter())
    for layer in (layer for layer in param.layer if layer.type == "Eltwise"):
        layer.eltwise_param.coeff.extend(coeffs)
    compute = Compute("auto" if gpu else "reference", numbers=numbers, graphs=graphs if gpu else "auto")
    return scaffe.Net(param, scaffe.TRAIN, engine=engines.create(compute, gpu))


def computed(net, look=""):
    """Return all numbers of two passes; a user looks at the blob `look` after each layer."""
    rng, found = np.random.default_rng(0), {}
    for number in range(2):
        net.clear_param_diffs()
        net.blobs["x"].data[...] = rng.standard_normal(net.blobs["x"].shape)
        for i in range(len(net.layers)):
            net.forward_layer(i)
            if look:
                found[f"{look} {number} after {i}"] = net.blobs[look].data.copy()
        found |= {f"{name} {number}": blob.data.copy() for name, blob in net.blobs.items()}
        net.blobs["end"].diff[...] = rng.standard_normal(net.blobs["end"].shape)
        for i in reversed(range(len(net.layers))):
            net.backward_layer(i)
            if look:
                found[f"{look} diff {number} after {i}"] = net.blobs[look].diff.copy()
        found |= {f"{name} diff {number}": blob.diff.copy() for name, blob in net.blobs.items()}
        for layer, blobs in net.params.items():
            for i, blob in enumerate(blobs):
                found |= {f"{layer}[{i}] {number}": blob.data.copy(), f"{layer}[{i}] diff {number}": blob.diff.copy()}
    return found


def assert_alike(found, expected):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        scale = max(1e-3, np.abs(values).max())
        np.testing.assert_allclose(found[name], values, rtol=0, atol=2e-5 * scale, err_msg=name)


@pytest.mark.parametrize(("name", "in_place"), EACH)
def test_a_chain_has_the_numbers_of_its_layers(name, in_place):
    assert_alike(*(computed(net_of(name, in_place, gpu)) for gpu in (StrictGpu(), None)))


@pytest.mark.parametrize("in_place", [True, False])
def test_a_weighted_sum_ends_no_chain(in_place):
    assert_alike(*(computed(net_of("projection", in_place, gpu, coeffs=(1, -2))) for gpu in (StrictGpu(), None)))


@pytest.mark.parametrize("numbers", ["float32", "tf32"])
@pytest.mark.parametrize("name", NETS)
def test_values_of_exactly_0_pass_no_gradient_on(name, numbers):
    nets = net_of(name, True, gpu_with(), numbers), net_of(name, True, None)
    for net in nets:
        for layer, blobs in net.params.items():
            if layer in ("a", "b"):
                blobs[0].data[:3] = 0  # channels that are constant
            if layer.startswith("scale"):
                blobs[1].data[...] = 0
    assert_alike(*map(computed, nets))


@pytest.mark.parametrize(("name", "in_place"), EACH)
def test_a_blob_within_a_chain_has_its_values_on_request(name, in_place):
    for look in net_of(name, in_place, None).blobs:
        if "split" not in look and look not in ("x", "end"):
            assert_alike(*(computed(net_of(name, in_place, gpu), look) for gpu in (StrictGpu(), None)))


@pytest.mark.parametrize(("name", "in_place"), EACH)
def test_a_chain_over_blobs_with_channels_last_has_the_same_numbers(name, in_place):
    net = net_of(name, in_place, gpu_with(), "tf32")  # which the stand-in for cuDNN does not round
    assert_alike(computed(net), computed(net_of(name, in_place, None)))
    typed = {name for name, blob in net.blobs.items() if blob.values.home is not None}
    assert typed == {name for name in net.blobs if name != "end" and not name.startswith("x")}


@pytest.mark.parametrize(("name", "in_place"), EACH)
def test_a_chain_in_bfloat16_is_rounded_a_few_times(name, in_place):
    low, full = (computed(net_of(name, in_place, gpu_with(), numbers)) for numbers in ("bf16", "tf32"))
    for blob, values in full.items():
        error = np.linalg.norm(low[blob] - values) / max(1e-3, np.linalg.norm(values))
        assert error < 0.05, blob


def repeated(net, starts):
    """Return all numbers after some passes by groups of layers, new groups beginning at `starts`."""
    rng, engine = np.random.default_rng(0), net.engine
    for _ in range(2 * WARM_UP + 3):
        net.clear_param_diffs()
        net.blobs["x"].data[...] = rng.standard_normal(net.blobs["x"].shape)
        engine.begin_pass()
        for group in engine.groups(net, starts):
            engine.forward(net, group)
        net.blobs["end"].diff[...] = rng.standard_normal(net.blobs["end"].shape)
        for group in reversed(engine.groups(net, starts)):
            engine.backward(net, group)
    found = {name: blob.data.copy() for name, blob in net.blobs.items()}
    found |= {f"{name} diff": blob.diff.copy() for name, blob in net.blobs.items()}
    return found | {f"{name} {i}": blob.diff for name, blobs in net.params.items() for i, blob in enumerate(blobs)}


@pytest.mark.parametrize(("numbers", "cut"), [("float32", True), ("bf16", False), ("bf16", True)])
@pytest.mark.parametrize(("name", "in_place"), [*product(["single", "projection"], (True, False))])
def test_a_chain_that_is_repeated_has_the_bits_of_one_that_is_computed(name, in_place, numbers, cut):
    nets = [net_of(name, in_place, gpu_with(), numbers, graphs=graphs) for graphs in ("on", "off")]
    starts = [i for i, layer in enumerate(nets[0].layers) if layer.blobs] if cut else []
    found, expected = (repeated(net, starts) for net in nets)
    for blob, values in expected.items():
        np.testing.assert_array_equal(found[blob], values, err_msg=blob)
    assert nets[0].engine.graphs._recordings


@pytest.fixture
def launched(monkeypatch):
    """The names of the kernels that are launched."""
    names, call = [], Kernel.__call__

    def note(self, *arguments):
        names.append(self.name)
        call(self, *arguments)

    monkeypatch.setattr(Kernel, "__call__", note)
    return names


NORM_FORWARD = ["norm_chunks_first", "norm_statistics", "normalise_first"]
NORM_BACK = ["norm_back_chunks_first", "norm_totals", "normalise_back_first"]


@pytest.mark.parametrize(("name", "in_place"), EACH)
def test_a_chain_is_computed_in_one_pass_each_way(launched, name, in_place):
    net = net_of(name, in_place, StrictGpu())
    for _ in range(2):
        launched.clear()
        for i in range(len(net.layers)):
            net.forward_layer(i)
        norms = sum(layer.type == "BatchNorm" for layer in net.layers)
        found = [kernel for kernel in launched if "norm" in kernel or "relu" in kernel or "eltwise" in kernel]
        assert sorted(found) == sorted(norms * NORM_FORWARD)
        launched.clear()
        net.blobs["end"].diff[...] = 1
        for i in reversed(range(len(net.layers))):
            net.backward_layer(i)
        found = [kernel for kernel in launched if any(part in kernel for part in ("norm", "relu", "eltwise", "unrect"))]
        assert sorted(found) == sorted(norms * NORM_BACK + ["sum_back_unrectified"] * ("e" in net.blobs))
