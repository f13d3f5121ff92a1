"""Blobs in oneDNN's layouts: plain to whoever looks, and whoever writes is heard."""

import numpy as np
import pytest
from both_engines import AVX, assert_alike, build, needs_onednn, run, uses

from scaffe.engines.onednn import descriptors, primitives

pytestmark = needs_onednn

TEXT = """
layer { name: "conv" type: "Convolution" bottom: "x0" top: "conv" convolution_param { num_output: 20 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { kernel_size: 3 stride: 2 } }
layer { name: "conv2" type: "Convolution" bottom: "pool" top: "y" convolution_param { num_output: 24 kernel_size: 3 } }
"""
SHAPE = (2, 3, 15, 13)


def both():
    return build(TEXT, SHAPE), build(TEXT, SHAPE, engine="reference")


def test_blobs_keep_the_engines_layout_between_its_layers():
    net, _ = both()
    net.forward()
    for name in ("conv", "pool"):  # below AVX convolutions are products of matrices, in the plain layout
        assert (net.blobs[name].values.form is not None) == uses(AVX)


def test_reading_a_blob_shows_plain_values_and_disturbs_nothing():
    net, reference = both()
    for each in (net, reference):
        each.forward()
    for name, blob in net.blobs.items():
        assert blob.data.flags.c_contiguous
        np.testing.assert_allclose(blob.data, reference.blobs[name].data, atol=1e-5)
        assert blob.values.form is None
    assert_alike(run(net), run(reference))


def test_values_written_into_a_blob_are_what_the_next_layers_see():
    net, reference = both()
    results = []
    for each in (net, reference):
        each.forward()
        each.blobs["pool"].data[...] = 3
        each.forward(start="conv2")
        results.append(each.blobs["y"].data.copy())
    np.testing.assert_allclose(*results, atol=1e-5)


def test_gradients_written_into_a_blob_are_what_the_layers_below_see():
    net, reference = both()
    for each in (net, reference):
        run(each)
        each.clear_param_diffs()
        each.blobs["pool"].diff[...] = np.arange(each.blobs["pool"].count).reshape(each.blobs["pool"].shape) % 7
        each.backward(start="pool")
    for ours, theirs in zip(net.params["conv"], reference.params["conv"], strict=True):
        np.testing.assert_allclose(ours.diff, theirs.diff, rtol=1e-5, atol=1e-3)


def test_an_input_may_be_written_through_an_array_that_was_kept():
    net, reference = both()
    results = []
    for each in (net, reference):
        kept = each.blobs["x0"].data
        each.forward()
        kept[...] = 0.5
        each.forward()
        results.append(each.blobs["y"].data.copy())
    np.testing.assert_allclose(*results, atol=1e-5)


@pytest.mark.parametrize("write", ["blob", "kept array", "packed"])
def test_changed_weights_are_in_force_in_the_next_pass(write):
    net, reference = both()
    results = []
    for each in (net, reference):
        kept = each.params["conv"][0].data
        each.forward()
        if write == "blob":
            each.params["conv"][0].data[...] *= -2
        elif write == "kept array":
            kept *= -2
        else:
            each.packed.data *= -2
        run(each)
        results.append(run(each))
    assert_alike(*results)


def test_gradients_of_parameters_add_up_over_passes():
    net, _ = both()
    once, twice = run(net), run(net, passes=1)
    net.forward()
    for name in net.outputs:
        net.blobs[name].diff[...] = np.random.default_rng(1).standard_normal(net.blobs[name].shape)
    net.backward()
    for name, blobs in net.params.items():
        for i, blob in enumerate(blobs):
            np.testing.assert_allclose(blob.diff, 2 * twice[f"{name}[{i}] diff"], rtol=1e-4, atol=1e-4)
    assert_alike(once, twice, 0)


def test_other_shapes_make_other_plans_and_the_same_numbers():
    net, reference = both()
    for shape in [(3, 3, 11, 12), (1, 3, 15, 13), SHAPE]:
        for each in (net, reference):
            each.blobs["x0"].reshape(*shape)
            each.reshape()
            each.blobs["x0"].data[...] = np.random.default_rng(3).standard_normal(shape)
        assert_alike(run(net), run(reference))


def computed_before(net):
    return [layer.name for layer in net.layers if getattr(layer, "_deferred", None) is not None]


def test_a_convolution_computes_the_relu_behind_it():
    net, reference = both()
    assert_alike(run(net, passes=2), run(reference, passes=2))
    assert computed_before(net) == ["relu"]


@pytest.mark.parametrize("change", [False, True])
def test_a_pass_that_ends_at_the_convolution_shows_it_before_the_relu(change):
    net, reference = both()
    seen = []
    for each in (net, reference):
        each.forward()  # so that all plans are made
        shown = each.forward(end="conv")["conv"].copy()
        if change:
            each.blobs["conv"].data[...] *= -1
        y = each.forward(start="relu")["y"].copy()
        each.clear_param_diffs()
        each.backward(y=np.ones_like(y))
        seen.append({"conv": shown, "y": y, "diff": each.params["conv"][0].diff.copy()})
    assert (seen[0]["conv"] < 0).any()
    assert_alike(*seen)
    assert not computed_before(net)


@pytest.mark.parametrize(
    "relu",
    [
        'layer { name: "relu" type: "ReLU" bottom: "c" top: "y" }',
        'layer { name: "relu" type: "ReLU" bottom: "c" top: "c" relu_param { negative_slope: -0.1 } }',
        'layer { name: "relu" type: "ReLU" bottom: "c" top: "y" } layer { name: "quiet" type: "Silence" bottom: "c" }',
    ],
)
def test_a_relu_that_needs_what_lies_below_computes_by_itself(relu):
    text = TEXT.split("layer {")[1].replace('"conv"', '"c"')
    nets = [build("layer {" + text + relu, SHAPE, engine=engine) for engine in ("onednn", "reference")]
    assert_alike(*map(run, nets))
    assert not computed_before(nets[0])


RESIDUAL = """
layer { name: "a" type: "Convolution" bottom: "x0" top: "a" convolution_param { num_output: 16 kernel_size: 1 } }
layer { name: "b" type: "Convolution" bottom: "a" top: "b" convolution_param { num_output: 16 kernel_size: 1 } }
layer { name: "bn" type: "BatchNorm" bottom: "b" top: "b" }
layer { name: "scale" type: "Scale" bottom: "b" top: "b" scale_param { bias_term: true } }
layer { name: "br" type: "ReLU" bottom: "b" top: "b" }
layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }
layer { name: "sr" type: "ReLU" bottom: "sum" top: "sum" }
layer { name: "drop" type: "Dropout" bottom: "sum" top: "sum" }
layer { name: "y" type: "Sigmoid" bottom: "sum" top: "y" }
"""


@pytest.mark.parametrize("text", [TEXT, RESIDUAL])
def test_a_steady_iteration_makes_nothing(monkeypatch, text):
    net = build(text, SHAPE)

    def iterate():
        net.clear_param_diffs()
        net.forward()
        net.blobs["y"].diff[...] = 1
        net.backward()

    for _ in range(2):
        iterate()
    made = []
    for kind in (primitives.Memory, primitives.Primitive, descriptors.Desc):
        start = kind.__init__
        monkeypatch.setattr(
            kind, "__init__", lambda self, *a, start=start, **k: (made.append(self), start(self, *a, **k))[1]
        )
    iterate()
    assert not made


def test_shared_values_of_a_split_are_one_array():
    net = build(TEXT + 'layer { name: "power" type: "Silence" bottom: "pool" }', SHAPE)
    net.forward()
    splits = [name for name in net.blobs if "split" in name]
    assert len(splits) == 2
    assert all(net.blobs[name].values is net.blobs["pool"].values for name in splits)


def test_two_passes_add_their_gradients_and_clearing_forgets_them():
    for net in both():
        for _ in range(2):
            run(net)
            net.clear_param_diffs()
            net.backward()
            once = net.packed.diff.copy()
            net.backward()
            np.testing.assert_allclose(net.packed.diff, 2 * once, rtol=1e-5, atol=1e-6)
