"""Sums of blobs by oneDNN against the reference form: blocked and plain, with a ReLU behind, and what shares memory."""

import logging

import numpy as np
import pytest
from both_engines import AVX, assert_alike, assert_engines_agree, build, is_fast, needs_onednn, run, uses
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = needs_onednn

SHAPE = (2, 3, 6, 5)


def branches(channels, kernels, between=""):
    """Return convolutions of the input with these kernels, padded so that their tops c0, c1, ... have one shape."""
    text = ""
    for i, kernel in enumerate(kernels):
        numbers = f"num_output: {channels} kernel_size: {kernel} pad: {kernel // 2}"
        text += (
            f'layer {{ name: "c{i}" type: "Convolution" bottom: "x0" top: "c{i}" convolution_param {{ {numbers} }} }}'
        )
        text += between.replace("%", str(i))
    return text


def eltwise(bottoms, fields="", top="y"):
    names = " ".join(f'bottom: "{name}"' for name in bottoms)
    return f'layer {{ name: "it" type: "Eltwise" {names} top: "{top}" eltwise_param {{ {fields} }} }}'


RELU = 'layer { name: "relu" type: "ReLU" bottom: "y" top: "%s" relu_param { negative_slope: %g } }'
RELU_BELOW = 'layer { name: "r%" type: "ReLU" bottom: "c%" top: "c%" }'


@settings(max_examples=50)
@given(
    channels=st.sampled_from([1, 3, 16, 20, 32]),
    count=st.integers(2, 4),
    coeffs=st.lists(st.sampled_from([1, -1, 0.5]), min_size=4, max_size=4) | st.none(),
    plain=st.booleans(),
    below=st.booleans(),
    relu=st.sampled_from([None, ("y", 0), ("y", 0.1), ("z", 0)]),
)
def test_sums_agree(channels, count, coeffs, plain, below, relu):
    """In-place layers below write into a gradient, which the other bottoms may not see."""
    fields = " ".join(f"coeff: {coeff}" for coeff in (coeffs or [])[:count])
    text = branches(channels, [1, 3, 1, 3][:count], RELU_BELOW * below)
    names = [f"c{i}" for i in range(count)]
    shapes = [SHAPE]
    if plain:
        shapes.append((SHAPE[0], channels, *SHAPE[2:]))
        names[0] = "x1"
        text += 'layer { name: "quiet" type: "Silence" bottom: "c0" }'
    text += eltwise(names, fields) + (RELU % relu if relu else "")
    assert is_fast(assert_engines_agree(text, *shapes, passes=2), "it")


def test_a_bottom_summed_twice_gets_both_gradients():
    text = branches(16, [1, 3], RELU_BELOW) + eltwise(["c0", "c1", "c0"])
    assert is_fast(assert_engines_agree(text, SHAPE), "it")


@pytest.mark.parametrize("fields", ["operation: PROD", "operation: MAX"])
def test_products_and_largest_values_compute_in_numpy(fields, caplog):
    with caplog.at_level(logging.INFO, "scaffe"):
        assert not is_fast(assert_engines_agree(branches(16, [1, 3]) + eltwise(["c0", "c1"], fields), SHAPE), "it")
    assert "layer 'it' (Eltwise) computes in numpy: products and largest values" in caplog.text


def residual():
    return build(branches(16, [1, 3]) + eltwise(["c0", "c1"]) + RELU % ("y", 0), SHAPE)


def test_a_residual_sum_never_leaves_the_engines_layout():
    net = residual()
    for i in range(len(net.layers)):
        net.forward_layer(i)
    kept = uses(AVX)  # SSE4.1 adds in the plain layout alone
    assert all(net.blobs[name].values.form is not None for name in ("c0", "c1"))
    assert (net.blobs["y"].values.form is not None) == kept
    net.blobs["y"].diff[...] = 1
    net.backward()
    assert all((net.blobs[name].diff_values.form is not None) == kept for name in ("c0", "c1"))


def test_gradients_that_share_memory_are_arrays_of_their_own_to_whoever_looks():
    net = residual()
    run(net)
    first, second = net.blobs["c0"].diff, net.blobs["c1"].diff
    np.testing.assert_array_equal(first, second)
    first[...] = 0
    assert second.any()


def test_a_pass_that_ends_at_the_sum_shows_it_before_the_relu():
    results = []
    for engine in ("onednn", "reference"):
        net = build(branches(16, [1, 3]) + eltwise(["c0", "c1"]) + RELU % ("y", 0), SHAPE, engine=engine)
        shown = net.forward(end="it")["y"].copy()
        net.forward(start="relu")
        results.append({"sum": shown, "y": net.blobs["y"].data.copy()} | run(net))
    assert (results[0]["sum"] < 0).any()
    assert_alike(*results)
