"""bfloat16's limits, layer by layer: finite differences, and numbers that are not finite or not normal.

A layer stands between layers that pass on what they get, so that its bottoms and tops are bfloat16.
"""

import numpy as np
import pytest
from both_engines import build, needs_bf16

from scaffe.engines.onednn.layer_primitives import OnednnLayer

pytestmark = needs_bf16

SHAPE = (2, 3, 5, 4)
STEP = 1 / 16  # of each number; in a plane they lie 1/8 apart, and 1/16 from 0: no step changes a maximum or a sign
CURVATURE = 0.01  # of a slope: what the third derivatives of smooth layers do over such a step
SMALLEST = np.finfo(np.float32).smallest_normal
LAYERS = {  # fields, number of bottoms, number of tops
    "AbsVal": ("", 1, 1),
    "BN": ("bn_param { slope_filler { value: 1 } }", 1, 1),
    "BNLL": ("", 1, 1),
    "BatchNorm": ("", 1, 1),
    "Clip": ("clip_param { min: -0.75 max: 0.5 }", 1, 1),
    "Concat": ("", 2, 1),
    "Convolution": ("convolution_param { num_output: 5 kernel_size: 3 pad: 1 }", 1, 1),
    "Deconvolution": ("convolution_param { num_output: 5 kernel_size: 2 stride: 2 }", 1, 1),
    "DepthwiseConvolution": ("convolution_param { num_output: 3 kernel_size: 3 pad: 1 }", 1, 1),
    "Dropout": ("dropout_param { dropout_ratio: 0.3 }", 1, 1),
    "ELU": ("elu_param { alpha: 0.5 }", 1, 1),
    "Eltwise": ("eltwise_param { coeff: 1 coeff: -0.5 }", 2, 1),
    "Exp": ("", 1, 1),
    "HardSwish": ("", 1, 1),
    "InnerProduct": ("inner_product_param { num_output: 40 }", 1, 1),
    "LRN": ("lrn_param { local_size: 3 alpha: 0.1 }", 1, 1),
    "Log": ("", 1, 1),
    "Mish": ("", 1, 1),
    "Pooling": ("pooling_param { kernel_size: 3 stride: 2 }", 1, 1),
    "Power": ("power_param { power: 2 }", 1, 1),
    "ReLU": ("relu_param { negative_slope: 0.25 }", 1, 1),
    "ReLU6": ("", 1, 1),
    "Scale": ("scale_param { bias_term: true }", 1, 1),
    "Sigmoid": ("", 1, 1),
    "Slice": ("slice_param { slice_point: 1 }", 1, 2),
    "Split": ("", 1, 2),
    "Swish": ("", 1, 1),
    "TanH": ("", 1, 1),
}
PRODUCTS = ["Convolution", "Deconvolution", "InnerProduct"]  # in which an infinite number can meet a zero of padding
PASSING = ["AbsVal", "Clip", "Concat", "Dropout", "ELU", "Eltwise", "LRN", "ReLU", "Scale", "Slice", "Split", "TanH"]
SPECIAL = {"NaN": np.nan, "inf": np.inf, "-inf": -np.inf}


def layer(kind, bottoms, tops, fields=""):
    """Return the text of a layer."""
    names = " ".join([f'bottom: "{name}"' for name in bottoms] + [f'top: "{name}"' for name in tops])
    return f'layer {{ name: "{tops[0]}" type: "{kind}" {names} {fields} }}\n'


def between(kind, **settings):
    """Return the net of a layer between such layers: from x0, x1, ... to y0, y1, ..."""
    fields, bottoms, tops = LAYERS[kind]
    text = "".join(layer("Power", [f"x{i}"], [f"a{i}"]) for i in range(bottoms))
    text += layer(kind, [f"a{i}" for i in range(bottoms)], [f"b{i}" for i in range(tops)], fields)
    for i in range(tops):
        text += layer("Power", [f"b{i}"], [f"c{i}"]) + layer("Power", [f"c{i}"], [f"y{i}"])
    net = build(text, *[SHAPE] * bottoms, **settings)
    rng, count = np.random.default_rng(3), SHAPE[2] * SHAPE[3]
    numbers = (np.arange(count) + 0.5 - (-0.5 if kind == "Log" else count / 2)) / 8
    for name, blob in blobs(net).items():
        planes = rng.permuted(np.tile(numbers, (SHAPE[0] * SHAPE[1], 1)), axis=1)
        blob.data[...] = planes.reshape(SHAPE) if name in net.inputs else low(blob.data)
    return net


def blobs(net):
    """Return the inputs and the parameters that gradients reach."""
    learned = {f"{name}[{i}]": blob for name, each in net.params.items() for i, blob in enumerate(each)}
    return {name: net.blobs[name] for name in net.inputs} | (learned if len(learned) < 3 else {})  # 3: statistics


def low(values):
    """Return the nearest numbers that bfloat16 has, but for ties."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF) & 0xFFFF0000).view(np.float32)


def ran(net, weights):
    """Run forward, and backward from `weights`, the gradients of the outputs; return both by name."""
    net.clear_param_diffs()
    net.forward()
    values = {name: net.blobs[name].data.astype(np.float64) for name in net.outputs}
    for name in net.outputs:
        net.blobs[name].diff[...] = weights[name]
    net.backward()
    return values, {name: blob.diff.copy() for name, blob in blobs(net).items()}


def weighted(values, weights):
    """Return the sum of the outputs times their weights."""
    return sum(float((weights[name] * each).sum()) for name, each in values.items())


def forms(base=OnednnLayer):
    """Iterate over the fast forms that take bfloat16."""
    for form in base.__subclasses__():
        yield from forms(form)
        if form.takes_bf16 and form.__module__.startswith("scaffe."):
            yield form.__name__.replace("Onednn", "")


def test_the_layers_here_are_all_that_take_bfloat16():
    assert {*forms()} - {"Elementwise"} | {"Split"} == {*LAYERS}


@pytest.mark.parametrize("kind", [kind for kind in LAYERS if kind != "Dropout"])  # which draws anew in each pass
def test_gradients_agree_with_finite_differences(kind):
    """Each number takes a step with the sign of its gradient, from and to numbers that bfloat16 has.

    Only tops are rounded, by 2^-8 of each at most. The sum of such errors is seldom above twice the root of the sum of
    their squares.
    """
    net, rng = between(kind, numbers="bf16"), np.random.default_rng(4)
    weights = {name: low(rng.standard_normal(net.blobs[name].shape)) for name in net.outputs}
    values, gradients = ran(net, weights)
    noise = 2**-7 * sum(((weights[name] * each) ** 2).sum() for name, each in values.items()) ** 0.5
    for name, blob in blobs(net).items():
        kept, gradient, sums = blob.data.copy(), gradients[name].astype(np.float64), []
        step = STEP * rng.random(blob.shape) * np.where(gradient < 0, -1, 1)
        sides = [low(kept + step), low(kept - step)]
        for side in sides:
            blob.data[...] = side
            sums.append(weighted(ran(net, weights)[0], weights))
        blob.data[...] = kept
        slope = float((gradient * (sides[0].astype(np.float64) - sides[1])).sum())
        assert abs(sums[0] - sums[1] - slope) <= noise + CURVATURE * slope, name


def with_one(kind, number, **settings):
    """Return the outputs and gradients of a net with that number in one place of x0, and of the gradient of y0."""
    net = between(kind, **settings)
    net.blobs["x0"].data[0, 1, 2, 2] = number
    weights = {name: np.ones(net.blobs[name].shape, np.float32) for name in net.outputs}
    weights["y0"].flat[7] = number
    values, gradients = ran(net, weights)
    return values | {f"{name} diff": each for name, each in gradients.items()}


def kinds_of(values):
    """Return 0 for each finite number, 1 for each infinite one, with its sign, and 2 for each NaN."""
    return np.where(np.isnan(values), 2, np.where(np.isinf(values), np.sign(values), 0))


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("kind", LAYERS)
def test_numbers_that_are_not_finite_pass_as_in_float32(kind, special):
    expected = with_one(kind, SPECIAL[special], numbers="float32")
    assert any(kinds_of(each).any() for each in expected.values())
    for name, found in with_one(kind, SPECIAL[special], numbers="bf16").items():
        there, here = kinds_of(expected[name]), kinds_of(found)
        if kind in PRODUCTS:
            assert here[there != 0].all(), name
        else:
            np.testing.assert_array_equal(here, there, name)


@pytest.mark.parametrize("kind", PASSING)
def test_a_denormal_number_becomes_zero_or_stays(kind):
    """The processor's conversion to bfloat16 takes it for zero, an error of less than the smallest normal number."""
    expected = with_one(kind, SMALLEST / 8, numbers="float32")
    for name, found in with_one(kind, SMALLEST / 8, numbers="bf16").items():
        denormal = np.abs(expected[name]) < SMALLEST
        assert np.abs(found[denormal]).max(initial=0) < SMALLEST, name
        assert kinds_of(found).max() == 0, name


def test_a_number_above_the_largest_of_bfloat16_becomes_infinite():
    values = with_one("Split", np.finfo(np.float32).max, numbers="bf16")["y0"]
    assert values[0, 1, 2, 2] == np.inf
    assert np.isfinite(values).sum() == values.size - 1


@pytest.mark.parametrize("special", SPECIAL)
def test_a_number_that_is_not_finite_reaches_the_loss(special):
    text = layer("Convolution", ["x0"], ["a"], "convolution_param { num_output: 6 kernel_size: 3 }")
    text += layer("BatchNorm", ["a"], ["b"]) + layer("ReLU", ["b"], ["r"]) + layer("LRN", ["r"], ["c"])
    text += layer("Pooling", ["c"], ["d"], "pooling_param { pool: AVE kernel_size: 2 stride: 2 }")
    text += layer("InnerProduct", ["d"], ["e"], "inner_product_param { num_output: 4 }")
    net = build(text + layer("SoftmaxWithLoss", ["e", "x1"], ["loss"]), (2, 3, 6, 6), (2,), numbers="bf16")
    net.blobs["x1"].data[...] = 1
    net.forward()
    assert np.isfinite(net.loss())
    net.blobs["x0"].data[1, 2, 3, 3] = SPECIAL[special]
    net.forward()
    assert not np.isfinite(net.loss())
