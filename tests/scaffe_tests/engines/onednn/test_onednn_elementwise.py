"""oneDNN's functions of single values against the reference forms: out of place and in place, blocked and plain."""

import numpy as np
import pytest
from both_engines import assert_alike, assert_engines_agree, build, is_fast, needs_onednn, run
from hypothesis import given
from hypothesis import strategies as st

pytestmark = needs_onednn

FAST = [
    ("AbsVal", ""),
    ("BNLL", ""),
    ("Clip", "clip_param { min: -0.5 max: 0.25 }"),
    ("ELU", "elu_param { alpha: 0.5 }"),
    ("ELU", "elu_param { alpha: -0.5 }"),
    ("Exp", ""),
    ("HardSwish", ""),
    ("Mish", ""),
    ("Power", "power_param { scale: -2 shift: 0.5 }"),
    ("Power", "power_param { power: 2 }"),
    ("ReLU", ""),
    ("ReLU", "relu_param { negative_slope: 0.1 }"),
    ("ReLU6", ""),
    ("Sigmoid", ""),
    ("Swish", "swish_param { beta: 1.5 }"),
    ("TanH", ""),
]
SLOW = [
    ("Exp", "exp_param { base: 2 }"),
    ("Log", "log_param { shift: 9 }"),
    ("Power", "power_param { power: 3 }"),
    ("ReLU6", "relu6_param { negative_slope: 0.1 }"),
]


def net_text(kind, fields, channels, blocked, in_place):
    """Return a net of the layer, over the input or a convolution of it."""
    first = ""
    if blocked:
        numbers = f"num_output: {channels} kernel_size: 1"
        first = f'layer {{ name: "c" type: "Convolution" bottom: "x0" top: "c" convolution_param {{ {numbers} }} }}'
    bottom = "c" if blocked else "x0"
    top = bottom if in_place else "y"
    return f'{first} layer {{ name: "it" type: "{kind}" bottom: "{bottom}" top: "{top}" {fields} }}'


@given(
    function=st.sampled_from(FAST),
    shape=st.tuples(st.integers(1, 3), st.sampled_from([3, 16, 20]), st.integers(1, 5), st.integers(1, 5)),
    blocked=st.booleans(),
    in_place=st.booleans(),
)
def test_functions_agree(function, shape, blocked, in_place):
    net = assert_engines_agree(net_text(*function, shape[1], blocked, in_place), shape)
    assert is_fast(net, "it") or (blocked and shape[1] % 16), "only padding of channels may stand in the way"


@pytest.mark.parametrize("function", SLOW)
@pytest.mark.parametrize("in_place", [False, True])
def test_functions_that_oneDNN_lacks_compute_in_numpy(function, in_place):
    assert not is_fast(assert_engines_agree(net_text(*function, 16, True, in_place), (2, 16, 3, 3)), "it")


@pytest.mark.parametrize("in_place", [False, True])
def test_relu_with_a_negative_slope_below_0_agrees(in_place):
    text = net_text("ReLU", "relu_param { negative_slope: -0.5 }", 16, True, in_place)
    assert is_fast(assert_engines_agree(text, (2, 16, 3, 3)), "it") != in_place


def test_log_agrees():
    shape, text = (2, 16, 3, 3), net_text("Log", "", 16, False, False)
    results = []
    for engine in ("onednn", "reference"):
        net = build(text, shape, engine=engine)
        net.blobs["x0"].data[...] = np.abs(net.blobs["x0"].data) + 0.1
        results.append(run(net))
        assert engine == "reference" or is_fast(net, "it")
    assert_alike(*results)


@pytest.mark.parametrize("value", [-0.5, 0.25])
def test_clip_passes_the_gradient_at_both_bounds(value):
    net = build(net_text("Clip", "clip_param { min: -0.5 max: 0.25 }", 16, False, False), (1, 16, 2, 2))
    net.blobs["x0"].data[...] = value
    net.forward()
    net.blobs["y"].diff[...] = 3
    net.backward()
    assert is_fast(net, "it")
    np.testing.assert_array_equal(net.blobs["x0"].diff, 3)


@pytest.mark.parametrize("kind", ["ReLU", "AbsVal"])
def test_an_input_that_a_layer_overwrote_may_be_filled_again(kind):
    """Whoever kept the blob's array writes into it, as a data layer does."""
    net = build(net_text(kind, "", 16, False, True), (2, 16, 3, 3))
    kept = net.blobs["x0"].data
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal(kept.shape).astype(np.float32)
        kept[...] = x
        net.forward()
        np.testing.assert_array_equal(net.blobs["x0"].data, np.maximum(x, 0) if kind == "ReLU" else np.abs(x))
        net.blobs["x0"].diff[...] = 1
        net.backward()
        np.testing.assert_array_equal(net.blobs["x0"].diff, x > 0 if kind == "ReLU" else np.sign(x))
