"""A convolution computed with the ReLU behind it, and by groups: the numbers of layer by layer, in fewer launches."""

import numpy as np
import pytest
from both_engines import assert_alike, build, run
from cudnn_gpu import gpu_with
from fake_cudnn import Engine, FakeFrontend
from host_kernels import Kernel

import scaffe
from scaffe.engines.cuda.graphs import WARM_UP

LAYERS = """
layer { name: "a" type: "Convolution" bottom: "x0" top: "a"
  convolution_param { num_output: 16 kernel_size: 3 pad: 1 GROUP bias_term: true } }
layer { name: "r" type: "ReLU" bottom: "a" top: "a" }
layer { name: "b" type: "Convolution" bottom: "a" top: "b"
  convolution_param { num_output: 16 kernel_size: 1 GROUP } }
"""
SHAPE = 2, 16, 5, 4
NUMBERS = "float32", "tf32", "bf16"
TOLERANCE = {"float32": 2e-5, "tf32": 2e-5, "bf16": 3e-2}  # the stand-in for cuDNN does not round to TF32


@pytest.fixture(autouse=True)
def _no_plans_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def a_net(way="", group="", layers=LAYERS, frontend=None, **how):
    """Return the net on a stand-in for a GPU; all passes forward take kernels of the variant `way`."""
    net = build(layers.replace("GROUP", group), SHAPE, engine="auto", gpu=gpu_with(frontend), plan="fixed", **how)
    if way:
        layers_works = [work for works in net.works() for work in works]
        forward = [work for work in layers_works if "correlate" in work]
        net.context.choices.taken = {work: f"{_of(work, way)}, eng0" for work in forward}
        if "by groups" in way:
            back = [work for work in layers_works if work not in forward]
            net.context.choices.taken |= dict.fromkeys(back, "channels last by groups, eng0")
        net.replan()
    return net


def _of(work, way):
    return way if "ReLU" in work else way.replace(" and ReLU", "")


def expected(group="", layers=LAYERS, **how):
    return run(build(layers.replace("GROUP", group), SHAPE, engine="reference", **how), 2)


@pytest.mark.parametrize("phase", [scaffe.TRAIN, scaffe.TEST])
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("fused", ["", " with bias", " with bias and ReLU"])
def test_the_numbers_are_those_of_the_layers(fused, numbers, phase):
    layout = "channels first" if numbers == "float32" else "channels last"
    frontend = FakeFrontend(Engine("eng0"))
    net = a_net(f"{layout}{fused}", frontend=frontend, numbers=numbers, phase=phase)
    assert_alike(run(net, 2), expected(phase=phase), TOLERANCE[numbers])
    assert any("with ReLU" in name for name in frontend.ran) == ("ReLU" in fused)


@pytest.mark.parametrize("numbers", ["tf32", "bf16"])
@pytest.mark.parametrize("fused", ["", " with bias", " with bias and ReLU"])
def test_groups_one_by_one_are_all_groups(fused, numbers):
    frontend = FakeFrontend(Engine("eng0"))
    net = a_net(f"channels last by groups{fused}", "group: 2", numbers=numbers, frontend=frontend)
    assert_alike(run(net, 2), expected("group: 2"), TOLERANCE[numbers])
    assert len(frontend.ran) == 2 * 2 * 2 * 3  # runs, layers, groups, passes


def test_groups_whose_channels_lie_where_no_kernel_reads_are_not_computed_apart():
    for group, apart in ((8, False), (2, True)):
        names = _timed(a_net(group=f"group: {group}", numbers="bf16"))
        assert names and any("by groups" in name for name in names) == apart


def _timed(net):
    return [name for works in net.works() for work in works.values() for name in work.time()]


@pytest.mark.parametrize("numbers", NUMBERS)
def test_a_blob_has_the_values_before_the_relu_on_request(numbers):
    net, other = a_net(numbers=numbers), build(LAYERS.replace("GROUP", ""), SHAPE, engine="reference")
    for phase_net in (net, other):
        phase_net.forward_layer(0)
        phase_net.forward_layer(1)
    values, right = net.blobs["a"].data.copy(), other.blobs["a"].data.copy()
    assert right.min() < 0
    np.testing.assert_allclose(values, right, atol=TOLERANCE[numbers] * np.abs(right).max())
    for phase_net in (net, other):
        phase_net.forward_layer(2)
    right = other.blobs["a"].data
    np.testing.assert_allclose(net.blobs["a"].data, right, atol=TOLERANCE[numbers] * np.abs(right).max())


def test_a_plan_whose_relu_loses_nan_is_left_out():
    for loses in (False, True):
        frontend = FakeFrontend(Engine("eng0", loses_nan=loses))
        names = _timed(a_net(numbers="bf16", frontend=frontend))
        assert any("ReLU" in name for name in names) != loses


@pytest.fixture
def launched(monkeypatch):
    names, call = [], Kernel.__call__
    monkeypatch.setattr(Kernel, "__call__", lambda self, *given: (names.append(self.name), call(self, *given)))
    return names


@pytest.mark.parametrize("numbers", ["tf32", "bf16"])
def test_the_relu_costs_no_launch_and_the_bias_no_pass_of_its_own(launched, numbers):
    net = a_net("channels last with bias and ReLU", numbers=numbers)
    run(net, 2)
    launched.clear()
    run(net, 1)
    ending = "_bf16_8" if numbers == "bf16" else "_4"
    assert not [name for name in launched if name.startswith("relu") or name == f"row_sums{ending}"]
    assert launched.count(f"unrectified_sums{ending}") == 1


def test_a_relu_that_comes_later_is_computed_by_itself(launched):
    between = LAYERS.replace(
        'layer { name: "r"', 'layer { name: "c" type: "Convolution" bottom: "x0" top: "c" convolution_param '
        '{ num_output: 4 kernel_size: 1 } }\nlayer { name: "r"'
    )  # fmt: skip
    net = a_net(layers=between, numbers="bf16")
    assert not any("ReLU" in work for works in net.works() for work in works)
    assert_alike(run(net), run(build(between.replace("GROUP", ""), SHAPE, engine="reference")), 3e-2)
    assert "relu_bf16" in launched


def repeated(net):
    """Return the numbers after some passes by groups of layers, which may be recorded."""
    rng, groups = np.random.default_rng(0), net.engine.groups(net)
    for _ in range(2 * WARM_UP + 3):
        net.clear_param_diffs()
        net.blobs["x0"].data[...] = rng.standard_normal(SHAPE)
        net.engine.begin_pass()
        for group in groups:
            net.engine.forward(net, group)
        net.blobs["b"].diff[...] = rng.standard_normal(net.blobs["b"].shape)
        for group in reversed(groups):
            net.engine.backward(net, group)
    found = {name: blob.data.copy() for name, blob in net.blobs.items()} | {"dx": net.blobs["x0"].diff.copy()}
    return found | {f"{name} {i}": blob.diff for name, blobs in net.params.items() for i, blob in enumerate(blobs)}


@pytest.mark.parametrize("numbers", ["float32", "bf16"])
def test_what_is_repeated_has_the_bits_of_what_is_computed(numbers):
    layout = "channels first" if numbers == "float32" else "channels last"
    nets = [a_net(f"{layout} with bias and ReLU", numbers=numbers, graphs=graphs) for graphs in ("on", "off")]
    found, right = (repeated(net) for net in nets)
    assert nets[0].engine.graphs._recordings
    for name, values in right.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
