"""Layers over bfloat16 blobs, each against its reference form over the same operands.

A layer stands between layers that keep bfloat16. Its reference form gets the operands that the engine had, all numbers
of bfloat16, and computes in float32. The engine sums in float32 too and rounds a result once, by at most 2^-9 of it.
The tolerance is 2^-8 of a number, for the rounding, and TOLERANCE of the largest one, for sums in another order. The
gradients of parameters are not rounded: for them TOLERANCE alone holds.
"""

from functools import partial

import numpy as np
import pytest
from both_engines import TOLERANCE, build, is_fast, needs_bf16

from scaffe.engines.onednn import library as lib
from scaffe.engines.onednn.primitives import Memory

pytestmark = needs_bf16
ROUNDED = 2**-8
BF16 = lib.BF16, lib.BF16


def layer(kind, fields="", bottoms="x", tops="y", name="it"):
    blobs = "".join(f'bottom: "{b}" ' for b in bottoms.split()) + "".join(f'top: "{t}" ' for t in tops.split())
    return f'layer {{ name: "{name}" type: "{kind}" {blobs}{fields} }}\n'


def convolution(fields, **names):
    return layer("Convolution", f"convolution_param {{ {fields} }}", **names)


def same(bottom, top):
    """Return a layer that passes on what it gets."""
    return layer("Power", bottoms=bottom, tops=top, name=f"{bottom} to {top}")


def between(text, bottoms, tops, before=same):
    """Return the net in which `text` gets its bottoms, and the gradients of its tops, from layers in bfloat16."""
    inner = "".join(before(f"x{i}", name) for i, name in enumerate(bottoms.split()))
    return inner + text + "".join(same(t, f"{t}_1") + same(f"{t}_1", f"{t}_2") for t in tops.split())


def mixed(bottom, top, channels=16):
    """Return a convolution that keeps the shape: its top has the engine's layout."""
    return convolution(f"num_output: {channels} kernel_size: 1", bottoms=bottom, tops=top, name=f"{bottom} to {top}")


def low(values):
    """Return numbers near these that bfloat16 has."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits & 0xFFFF0000).view(np.float32)


def run(net, positive=False):
    """Run a pass forward and backward over numbers of bfloat16."""
    for blobs in ([net.blobs[name] for name in net.inputs], *net.params.values()):
        for blob in blobs:
            blob.data[...] = low(abs(blob.data) + 0.5 if positive else blob.data)
    net.clear_param_diffs()
    net.forward()
    rng = np.random.default_rng(1)
    for name in net.outputs:
        net.blobs[name].diff[...] = low(rng.standard_normal(net.blobs[name].shape))
    net.backward()
    return net


def kind(values):
    """Return the data type of values in an engine's form, None for those in a plain array."""
    return values.form.desc.kind if isinstance(values.form, Memory) else None


def kinds(net, names):
    """Return the data types of the values and the gradient of each of these blobs."""
    return [(kind(net.blobs[name].values), kind(net.blobs[name].diff_values)) for name in names.split()]


def by_reference(net, text, bottoms, tops):
    """Return a net of the reference forms, after a pass over the operands that the layers of `net` had."""
    names = bottoms.split()
    for i, name in enumerate(names):
        text = text.replace(f'bottom: "{name}"', f'bottom: "x{i}"')
    reference = build(text, *(net.blobs[name].shape for name in names), engine="reference")
    for i, name in enumerate(names):
        reference.blobs[f"x{i}"].data[...] = net.blobs[name].data
    for name, blobs in reference.params.items():
        for blob, ours in zip(blobs, net.params[name], strict=True):
            blob.data[...] = ours.data
    reference.clear_param_diffs()
    found = {name: values.copy() for name, values in reference.forward(tops.split()).items()}
    for name in tops.split():
        if "Swish" not in text:  # the gradients of other layers are computed from the top, which is rounded
            reference.blobs[name].data[...] = net.blobs[name].data
        reference.blobs[name].diff[...] = net.blobs[name].diff
    reference.backward()
    found |= {f"{name} diff": reference.blobs[f"x{i}"].diff for i, name in enumerate(names)}
    return found, {name: [blob.diff for blob in blobs] for name, blobs in reference.params.items()}


def assert_rounded_once(text, *shapes, bottoms="x", tops="y", before=same, positive=False, beside=TOLERANCE):
    """Compare layers between others in bfloat16 with the reference forms; return the net."""
    net = run(build(between(text, bottoms, tops, before), *shapes, numbers="bf16"), positive)
    assert kinds(net, f"{bottoms} {tops}") == [BF16] * len(f"{bottoms} {tops}".split())
    values, learned = by_reference(net, text, bottoms, tops)
    for name, expected in values.items():
        blob, part = net.blobs[name.removesuffix(" diff")], "diff" if name.endswith(" diff") else "data"
        found, scale = getattr(blob, part), float(np.abs(expected).max())
        np.testing.assert_allclose(found, expected, rtol=ROUNDED, atol=beside * scale, err_msg=name)
    for name, diffs in learned.items():
        for blob, expected in zip(net.params[name], diffs, strict=True):
            scale = float(np.abs(expected).max())
            np.testing.assert_allclose(blob.diff, expected, rtol=0, atol=TOLERANCE * scale, err_msg=name)
    return net


SHAPE = (2, 16, 9, 7)
both_layouts = pytest.mark.parametrize("before", [same, mixed])  # plain; the engine's own


@both_layouts
@pytest.mark.parametrize(
    "fields",
    [
        "num_output: 24 kernel_size: 3 pad: 1",
        "num_output: 20 kernel_size: 5 stride: 2 bias_term: false",
        "num_output: 32 kernel_size: 3 group: 2",
        "num_output: 16 kernel_size: 3 group: 16",
        "num_output: 24 kernel_size: 1",
        "num_output: 24 kernel_size: 1 stride: 2",
        "num_output: 24 kernel_size: 1 stride: 3 bias_term: false",
        "num_output: 24 kernel_size: 1 pad: 1",
        "num_output: 24 kernel_size: 1 group: 2",
    ],
)
def test_convolutions(fields, before):
    assert is_fast(assert_rounded_once(convolution(fields), SHAPE, before=before), "it")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "fields",
    [
        "num_output: 24 kernel_size: 11 stride: 4",
        "num_output: 20 kernel_size: 7 stride: 2 pad: 3 bias_term: false",
        "num_output: 16 kernel_h: 2 kernel_w: 5 stride: 3 pad_h: 0 pad_w: 2",
        "num_output: 16 kernel_size: 3 stride: 2 dilation: 2",
    ],
)
def test_the_weights_of_a_first_convolution_with_strides(fields, channels):
    net = assert_rounded_once(convolution(fields), (2, channels, 19, 16))
    once = [blob.diff.copy() for blob in net.params["it"]]
    assert all(diff.any() for diff in once)
    net.backward()
    for blob, diff in zip(net.params["it"], once, strict=True):
        np.testing.assert_array_equal(blob.diff, 2 * diff)


@pytest.mark.parametrize("shape", [(2, 4, 9), (2, 3, 5, 6, 4)])
@pytest.mark.parametrize("size", [1, 3])
def test_convolutions_of_one_and_three_axes(shape, size):
    assert is_fast(assert_rounded_once(convolution(f"num_output: 6 kernel_size: {size} stride: 2"), shape), "it")


def test_convolution_of_two_bottoms():
    text = convolution("num_output: 24 kernel_size: 1", bottoms="a b", tops="y z")
    assert_rounded_once(text, SHAPE, SHAPE, bottoms="a b", tops="y z")


@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
@pytest.mark.parametrize("fields", ["kernel_size: 3 stride: 2 pad: 1", "kernel_size: 3 stride: 3 pad: 1"])
def test_filters_wider_than_the_image_have_gradients_of_numbers_alone(kind, fields):
    """Scratch memory holds what other layers have left there."""
    text = layer(kind, f"convolution_param {{ num_output: 16 {fields} }}", bottoms="x0")
    net = run(build(text, (2, 4, 3, 1), numbers="bf16"))
    expected = net.params["it"][0].diff.copy()
    net.engine.scratchpad(net.engine.plain((1,))).buffer[:] = np.nan
    assert is_fast(net, "it") and not np.isnan(expected).any()
    np.testing.assert_array_equal(run(net).params["it"][0].diff, expected)


@pytest.mark.parametrize(
    "kind, fields",
    [
        ("Convolution", "convolution_param { num_output: 24 kernel_size: 3 stride: 2 }"),
        ("Deconvolution", "convolution_param { num_output: 24 kernel_size: 4 stride: 2 }"),
        ("InnerProduct", "inner_product_param { num_output: 40 }"),
    ],
)
def test_the_first_layer_rounds_float32_images_once_and_writes_no_bfloat16_gradient_for_them(kind, fields):
    text = layer(kind, fields, "x0")
    net = run(build(text + same("y", "z") + same("z", "out"), (2, 3, 15, 13), numbers="bf16"))
    assert kinds(net, "y") == [BF16]
    assert all(numbers in (None, lib.F32) for numbers in kinds(net, "x0")[0])
    values, _ = by_reference(net, text, "x0", "y")
    scale = abs(values["x0 diff"]).max()
    np.testing.assert_allclose(net.blobs["x0"].diff, values["x0 diff"], rtol=0, atol=TOLERANCE * scale)


@both_layouts
@pytest.mark.parametrize("fields", ["num_output: 40", "num_output: 40 axis: 2", "num_output: 40 bias_term: false"])
def test_inner_products(fields, before):
    text = layer("InnerProduct", f"inner_product_param {{ {fields} }}")
    assert is_fast(assert_rounded_once(text, (5, *SHAPE[1:]), before=before), "it")


def test_transposed_weights_multiply_values_of_bfloat16():
    text = layer("InnerProduct", "inner_product_param { num_output: 48 transpose: true }")
    net = run(build(between(text, "x", "y"), (2, 48), numbers="bf16"))  # square: no shape tells them from others
    values, learned = by_reference(net, text, "x", "y")
    np.testing.assert_allclose(net.blobs["y"].data, values["y"], rtol=0, atol=TOLERANCE * abs(values["y"]).max())
    for blob, expected in zip(net.params["it"], learned["it"], strict=True):
        np.testing.assert_allclose(blob.diff, expected, rtol=0, atol=TOLERANCE * abs(expected).max())


@pytest.mark.parametrize("rows", [32, 33])
def test_inner_products_of_few_and_of_many_rows(rows):
    assert_rounded_once(layer("InnerProduct", "inner_product_param { num_output: 70 }"), (rows, 50))


@both_layouts
@pytest.mark.parametrize("fields", ["kernel_size: 3 stride: 2", "kernel_size: 4 stride: 2"])
@pytest.mark.parametrize("pool", ["MAX", "AVE"])
def test_pooling_whose_windows_overlap_in_pairs(pool, fields, before):
    """Up to four windows share an element, after each of which oneDNN may round its gradient."""
    text = layer("Pooling", f"pooling_param {{ pool: {pool} {fields} }}")
    assert is_fast(assert_rounded_once(text, SHAPE, before=before, beside=3 * 2**-9), "it")


@both_layouts
@pytest.mark.parametrize(
    "fields",
    [
        "pool: MAX kernel_size: 2 stride: 2",
        "pool: MAX kernel_size: 3 stride: 1 pad: 1",
        "pool: MAX kernel_size: 5 stride: 2",
        "pool: AVE kernel_size: 3 stride: 1",
        "pool: AVE global_pooling: true",
    ],
)
def test_pooling(fields, before):
    assert is_fast(assert_rounded_once(layer("Pooling", f"pooling_param {{ {fields} }}"), SHAPE, before=before), "it")


@both_layouts
@pytest.mark.parametrize(
    "kind, fields",
    [
        ("AbsVal", ""),
        ("BNLL", ""),
        ("Clip", "clip_param { min: -0.5 max: 0.75 }"),
        ("ELU", ""),
        ("Exp", ""),
        ("Power", "power_param { power: 2 }"),
        ("ReLU", ""),
        ("ReLU", "relu_param { negative_slope: 0.125 }"),
        ("Sigmoid", ""),
        ("Swish", ""),
        ("TanH", ""),
        ("Dropout", "dropout_param { dropout_ratio: 0.3 }"),
        ("BatchNorm", ""),
        ("Scale", "scale_param { bias_term: true }"),
        ("Scale", ""),
    ],
)
def test_one_bottom_and_one_top(kind, fields, before):
    net = assert_rounded_once(layer(kind, fields), SHAPE, before=before)
    assert is_fast(net, "it")


def test_logarithm():
    assert is_fast(assert_rounded_once(layer("Log"), SHAPE, positive=True), "it")


@both_layouts
@pytest.mark.parametrize("size", [3, 5, 7])
@pytest.mark.parametrize("channels", [16, 20, 48])
def test_lrn(channels, size, before):
    """Its gradient is a difference of terms that oneDNN rounds before it subtracts."""
    text = layer("LRN", f"lrn_param {{ local_size: {size} alpha: 0.5 }}")
    make = partial(before, channels=channels) if before is mixed else before
    shape = (2, channels, 9, 7)
    net = run(build(between(text, "x", "y", make), shape, numbers="bf16"))
    values, _ = by_reference(net, text, "x", "y")
    for name, found in (("y", net.blobs["y"].data), ("x diff", net.blobs["x"].diff)):
        scale = float(np.abs(values[name]).max())
        np.testing.assert_allclose(found, values[name], rtol=ROUNDED, atol=ROUNDED * scale, err_msg=name)


NORM = layer("BatchNorm", tops="n", name="bn") + layer("Scale", "scale_param { bias_term: true }", "n", "s", "scale")


def test_a_batch_norm_computes_scale_and_relu_without_rounding_between():
    text = NORM + layer("ReLU", bottoms="s", tops="y", name="relu")
    net = run(build(between(text, "x", "y", mixed), SHAPE, numbers="bf16"))
    assert kinds(net, "x y") == [BF16] * 2
    values, learned = by_reference(net, text, "x", "y")
    unclear = abs(values["y"]) < 1e-6  # signs that the order of sums decides
    assert not unclear[values["y"] != 0].any()
    for name, expected in values.items():
        blob = net.blobs[name.removesuffix(" diff")]
        found = blob.diff if name.endswith("diff") else blob.data
        np.testing.assert_allclose(found, expected, rtol=ROUNDED, atol=1e-4 * abs(expected).max(), err_msg=name)
    for blob, expected in zip(net.params["scale"], learned["scale"], strict=True):
        np.testing.assert_allclose(blob.diff, expected, atol=TOLERANCE * abs(expected).max())


@both_layouts
@pytest.mark.parametrize("fields", ["", "eltwise_param { coeff: 1 coeff: -2 coeff: 0.5 }"])
def test_sums(fields, before):
    bottoms = "a b c" if fields else "a b"
    text = layer("Eltwise", fields, bottoms)
    net = assert_rounded_once(text, *[SHAPE] * len(bottoms.split()), bottoms=bottoms, before=before)
    assert is_fast(net, "it")


@both_layouts
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concatenations(axis, before):
    net = assert_rounded_once(
        layer("Concat", f"concat_param {{ axis: {axis} }}", "a b"), SHAPE, SHAPE, bottoms="a b", before=before
    )
    assert is_fast(net, "it")


@both_layouts
@pytest.mark.parametrize("fields", ["axis: 1 slice_point: 5", "axis: 0", "axis: 2 slice_point: 3"])
def test_slices(fields, before):
    net = assert_rounded_once(
        layer("Slice", f"slice_param {{ {fields} }}", tops="y z"), SHAPE, tops="y z", before=before
    )
    assert is_fast(net, "it")


@both_layouts
@pytest.mark.parametrize("tops", ["y z", "y z w"])
def test_splits(tops, before):
    assert_rounded_once("".join(same("x", top) for top in tops.split()), SHAPE, tops=tops, before=before)


@both_layouts
@pytest.mark.parametrize("group", [1, 2])
def test_deconvolutions(group, before):
    fields = f"convolution_param {{ num_output: 12 kernel_size: 4 stride: 2 pad: 1 group: {group} }}"
    assert is_fast(assert_rounded_once(layer("Deconvolution", fields), SHAPE, before=before), "it")


@pytest.mark.parametrize(
    "text",
    [
        layer("LSTM", "recurrent_param { num_output: 8 weight_filler { type: 'xavier' } }", "x c"),
        layer("Softmax"),
        layer("Eltwise", "eltwise_param { operation: PROD }", "x c"),
    ],
)
def test_other_layers_compute_in_float32(text):
    shapes = ((5, 3, 6), (5, 3)) if "LSTM" in text else (SHAPE, SHAPE)
    nets = [
        run(build(text.replace('"x"', '"x0"').replace('"c"', '"x1"'), *shapes, numbers=n)) for n in ("bf16", "float32")
    ]
    for name, blob in nets[1].blobs.items():
        np.testing.assert_array_equal(nets[0].blobs[name].data, blob.data)


@both_layouts
@pytest.mark.parametrize(
    "kind, fields",
    [
        ("ReLU", ""),
        ("Sigmoid", ""),
        ("BNLL", ""),
        ("Dropout", "dropout_param { dropout_ratio: 0.3 }"),
        ("BatchNorm", ""),
        ("Scale", "scale_param { bias_term: true }"),
    ],
)
def test_in_place_the_numbers_are_the_same(kind, fields, before):
    found = []
    for top in ("y", "x"):
        net = run(build(between(layer(kind, fields, tops=top), "x", top, before), SHAPE, numbers="bf16"))
        learned = [blob.diff for blobs in net.params.values() for blob in blobs]
        found.append([net.blobs[f"{top}_2"].data, net.blobs["x0"].diff, *learned])
    for separate, in_place in zip(*found, strict=True):
        np.testing.assert_array_equal(in_place, separate)


@pytest.mark.parametrize(
    "kind, fields, rows",
    [
        ("Convolution", "convolution_param { num_output: 24 kernel_size: 1 }", 2),
        ("Convolution", "convolution_param { num_output: 24 kernel_size: 3 }", 2),
        ("InnerProduct", "inner_product_param { num_output: 40 }", 2),
        ("InnerProduct", "inner_product_param { num_output: 40 }", 33),
        ("Scale", "scale_param { bias_term: true }", 2),
    ],
)
@pytest.mark.parametrize("frozen", [0, 1])
def test_parameters_that_are_not_learned_get_no_gradient(kind, fields, rows, frozen):
    nets = [build(between(layer(kind, fields), "x", "y", mixed), (rows, *SHAPE[1:]), numbers="bf16") for _ in range(2)]
    nets[0].layer_dict["it"].param_propagate_down[frozen] = False
    one, both = ([blob.diff for blob in run(net).params["it"]] for net in nets)
    assert is_fast(nets[0], "it")
    assert not one[frozen].any()
    np.testing.assert_array_equal(one[1 - frozen], both[1 - frozen])


def test_a_scale_learns_where_its_bottom_needs_no_gradient():
    net = run(build(between(layer("Scale", "scale_param { bias_term: true }"), "x", "y", mixed), SHAPE, numbers="bf16"))
    expected = [blob.diff.copy() for blob in net.params["it"]]
    net.clear_param_diffs()
    net.blobs["y"].diff[...] *= 2
    net.layer_dict["it"].backward([net.blobs["y"]], [False], [net.blobs["x"]])
    for blob, diff in zip(net.params["it"], expected, strict=True):
        np.testing.assert_array_equal(blob.diff, 2 * diff)
