"""BatchNorm by oneDNN, alone and in one with Scale and ReLU: against the reference forms, whoever looks in between."""

from itertools import takewhile

import numpy as np
import pytest
from both_engines import AVX, AVX2, TOLERANCE, assert_alike, build, directional_slope, is_fast, needs_onednn, run, uses
from hypothesis import given
from hypothesis import strategies as st

import scaffe

pytestmark = needs_onednn

SHAPE = (3, 4, 5, 6)


def layer(kind, bottom, top, fields="", name=None):
    return f'layer {{ name: "{name or kind}" type: "{kind}" bottom: "{bottom}" top: "{top}" {fields} }}\n'


def chain(channels, kinds, in_place=True, fields="", conv=True, bias=True):
    """Return a net of a convolution, if asked for, and layers of these types one behind the other."""
    numbers = f"num_output: {channels} kernel_size: 1 bias_term: false"
    text = layer("Convolution", "x0", "c", f"convolution_param {{ {numbers} }}") if conv else ""
    given_fields = {"BatchNorm": fields, "Scale": f"scale_param {{ bias_term: {str(bias).lower()} }}"}
    bottom = "c" if conv else "x0"
    for kind in kinds:
        top = bottom if in_place else f"{kind.lower()} of {bottom}"
        text += layer(kind, bottom, top, given_fields.get(kind, ""))
        bottom = top
    return text + layer("Power", bottom, "y", "power_param { scale: 2 }")


def pair(text, *shapes, phase=scaffe.TRAIN):
    """Return the net on both engines, the variances that it has gathered positive."""
    nets = [build(text, *shapes, phase=phase, engine=engine) for engine in ("onednn", "reference")]
    for net in nets:
        for blob in net.params["BatchNorm"][1:]:
            blob.data[...] = np.abs(blob.data) + 0.5
    return nets


def values(net):
    """Return all blobs' values and gradients, those between two layers too, and the parameters' gradients."""
    found = {name: blob.data.copy() for name, blob in net.blobs.items()}
    found |= {f"{name} diff": blob.diff.copy() for name, blob in net.blobs.items()}
    return found | {
        f"{name}[{i}]": part for name, bs in net.params.items() for i, b in enumerate(bs) for part in (b.data + b.diff,)
    }


FUSED = {"Scale": AVX, "ReLU": AVX2}  # the narrowest instruction set on which oneDNN fuses it
KINDS = [["BatchNorm"], ["BatchNorm", "Scale"], ["BatchNorm", "ReLU"], ["BatchNorm", "Scale", "ReLU"]]


@given(
    channels=st.sampled_from([1, 3, 8, 16, 20, 32]),
    images=st.integers(1, 4),
    size=st.tuples(st.integers(1, 5), st.integers(2, 5)),
    kinds=st.sampled_from(KINDS),
    in_place=st.booleans(),
    conv=st.booleans(),
    bias=st.booleans(),
    sums=st.booleans(),
    phase=st.sampled_from([scaffe.TRAIN, scaffe.TEST]),
)
def test_chains_agree(channels, images, size, kinds, in_place, conv, bias, sums, phase):
    fields = "batch_norm_param { moving_average_fraction: 0.9 eps: 0.01 %s }" % ("use_global_stats: true" * sums)
    text = chain(channels, kinds, in_place, fields, conv, bias)
    net, reference = pair(text, (images, channels, *size), phase=phase)
    for each in (net, reference):
        run(each, passes=2)
    assert is_fast(net, "BatchNorm")
    assert_alike(values(net), values(reference), 4 * TOLERANCE)  # two passes' rounding, divided by a deviation


@pytest.mark.parametrize("kinds", KINDS)
def test_what_follows_is_computed_in_one(kinds):
    net = build(chain(16, kinds), SHAPE)
    run(net)
    fused = list(takewhile(lambda kind: uses(FUSED[kind]), kinds[1:]))
    assert [link.type for link in net.layer_dict["BatchNorm"]._primitives.chain] == fused


@pytest.mark.parametrize("fields", ["axis: 2 num_axes: 1", "num_axes: 2", "axis: 0 num_axes: 1"])
def test_a_scale_of_other_axes_is_computed_by_itself(fields):
    text = chain(16, KINDS[3]).replace("bias_term: true", fields)
    net, reference = pair(text, SHAPE)
    assert_alike(run(net), run(reference), 4 * TOLERANCE)
    assert not net.layer_dict["BatchNorm"]._primitives.chain


def test_a_blob_that_two_layers_take_ends_the_chain():
    text = chain(16, KINDS[1], in_place=False) + layer("Silence", "batchnorm of c", "")
    text = text.replace(' top: "" ', "")
    net, reference = pair(text, SHAPE)
    assert_alike(run(net), run(reference), 4 * TOLERANCE)
    assert not net.layer_dict["BatchNorm"]._primitives.chain


@pytest.mark.parametrize("in_place", [False, True])
def test_passes_in_parts_show_and_take_what_lies_between(in_place):
    """Each layer by itself, with a look and a change in between, is what the reference computes."""
    nets = pair(chain(16, KINDS[3], in_place), SHAPE)
    names = ["Convolution", *KINDS[3], "Power"]
    for seed in range(2):
        seen = []
        for net in nets:
            rng, here = np.random.default_rng(seed), []
            net.clear_param_diffs()
            for name in names:
                net.forward(start=name if name != names[0] else None, end=name)
                blob = net.blobs[net.top_names[name][0]]
                here.append(blob.data.copy())
                blob.data[...] += 0.1 * rng.standard_normal(blob.shape)
            net.blobs["y"].diff[...] = rng.standard_normal(net.blobs["y"].shape)
            for name in reversed(names):
                net.backward(start=name, end=name)
                blob = net.blobs[net.bottom_names[name][0]]
                here.append(blob.diff.copy())
                blob.diff[...] *= 2
            here += [b.diff.copy() for bs in net.params.values() for b in bs]
            seen.append({str(i): array for i, array in enumerate(here)})
        assert_alike(*seen, 4 * TOLERANCE)


def test_looks_between_the_passes_change_nothing():
    results = []
    for net, looks in zip(pair(chain(16, KINDS[3], in_place=False), SHAPE), (True, False), strict=True):
        net.forward()
        if looks:
            for blob in net.blobs.values():
                assert blob.data.flags.c_contiguous
        net.blobs["y"].diff[...] = 1
        net.backward()
        results.append(values(net))
    assert_alike(*results, 4 * TOLERANCE)


def test_a_changed_factor_is_in_force_where_a_pass_begins_at_scale():
    results = []
    for net in pair(chain(16, KINDS[1], in_place=False), SHAPE):
        net.forward()
        net.params["Scale"][0].data[...] *= 3
        net.forward(start="Scale")
        results.append({"y": net.blobs["y"].data.copy()})
    assert_alike(*results, 4 * TOLERANCE)


def test_frozen_factors_get_no_gradient():
    text = chain(16, KINDS[1]).replace('type: "Scale"', 'type: "Scale" param { lr_mult: 0 } param { lr_mult: 1 }')
    net = build(text.replace("force_backward: true", ""), SHAPE)
    net.layer_dict["Scale"].param_propagate_down[0] = False
    run(net)
    assert not net.params["Scale"][0].diff.any()
    assert net.params["Scale"][1].diff.any()


@pytest.mark.parametrize("shape", [(6,), (6, 16), (5, 3), (2, 3, 4), (2, 16, 2, 3, 4)])
@pytest.mark.parametrize("top", ["x0", "y"])
def test_bottoms_of_any_number_of_axes_agree(shape, top):
    net, reference = pair(layer("BatchNorm", "x0", top, "batch_norm_param { eps: 0.01 }"), shape)
    for _ in range(2):
        assert_alike(run(net), run(reference), 4 * TOLERANCE)
    assert is_fast(net, "BatchNorm") == (len(shape) > 1)


@pytest.mark.parametrize("kinds", KINDS[:2])
def test_gradients_agree_with_finite_differences(kinds):
    net = build(chain(16, kinds, fields="batch_norm_param { eps: 0.1 }"), (4, 3, 5, 5))
    found = run(net)
    blobs = {"x0": net.blobs["x0"], "Convolution[0]": net.params["Convolution"][0]}
    blobs |= {f"Scale[{i}]": blob for i, blob in enumerate(net.params.get("Scale", []))}
    for name, blob in blobs.items():
        slope, gradient, norm = directional_slope(net, blob, found[f"{name} diff"])
        assert abs(gradient - slope) < 2e-3 * norm, name


def test_a_net_that_freezes_what_lies_below_learns_its_factors_alone():
    text = chain(16, KINDS[3]).replace('type: "Convolution"', 'type: "Convolution" param { lr_mult: 0 }')
    results = []
    for engine in ("onednn", "reference"):
        net = build(text, SHAPE, engine=engine, force_backward=False)
        results.append(run(net))
        assert not net.nodes[net._layer_names.index("BatchNorm")].backward
    assert_alike(*results, 4 * TOLERANCE)
