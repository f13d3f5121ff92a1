"""oneDNN's forms of the layers against the reference forms, over random shapes, and against finite differences."""

import logging
import re

import pytest
from both_engines import AVX512, assert_engines_agree, build, directional_slope, is_fast, needs_onednn, run, uses
from hypothesis import assume, given
from hypothesis import strategies as st

import scaffe

pytestmark = needs_onednn

sizes = st.integers(1, 12)
RELU = 'layer { name: "relu" type: "ReLU" bottom: "y" top: "y" }'


def layer(kind, fields, bottoms=("x0",), top="y", name="it"):
    names = " ".join(f'bottom: "{bottom}"' for bottom in bottoms)
    return f'layer {{ name: "{name}" type: "{kind}" {names} top: "{top}" {fields} }}\n'


def convolution(outputs, fields, **names):
    return layer("Convolution", f"convolution_param {{ num_output: {outputs} {fields} }}", **names)


@given(data=st.data())
def test_convolutions_agree(data):
    group = data.draw(st.sampled_from([1, 1, 1, 2, 3, 16]), "group")
    inputs, outputs = (group * data.draw(st.integers(1, 5)) for _ in "io")
    kernel, stride = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4))), data.draw(st.integers(1, 3))
    pad, dilation = data.draw(st.integers(0, 2)), data.draw(st.integers(1, 2))
    height, width = data.draw(sizes, "height"), data.draw(sizes, "width")
    for size, reach in zip((height, width), kernel, strict=True):
        assume(size + 2 * pad >= dilation * (reach - 1) + 1)
    bias = data.draw(st.booleans(), "bias")
    fields = f"kernel_h: {kernel[0]} kernel_w: {kernel[1]} stride: {stride} pad: {pad} dilation: {dilation}"
    text = convolution(outputs, f"{fields} group: {group} bias_term: {str(bias).lower()}")
    shape = data.draw(st.integers(1, 3), "images"), inputs, height, width
    assert is_fast(assert_engines_agree(text, shape, passes=2), "it")


@pytest.mark.parametrize("shape", [(2, 4, 9), (2, 3, 5, 6, 4)])
def test_convolutions_of_one_and_three_axes_agree(shape):
    assert is_fast(assert_engines_agree(convolution(5, "kernel_size: 3 pad: 1"), shape), "it")


def test_depthwise_convolution_agrees():
    assert is_fast(assert_engines_agree(convolution(32, "kernel_size: 3 pad: 1 group: 32"), (2, 32, 7, 9)), "it")


def test_convolution_of_two_bottoms_adds_both_gradients():
    text = 'layer { name: "it" type: "Convolution" bottom: "x0" bottom: "x1" top: "y" top: "z" convolution_param {'
    net = assert_engines_agree(text + " num_output: 4 kernel_size: 3 } }", (2, 3, 7, 7), (2, 3, 7, 7))
    assert is_fast(net, "it")


def test_convolution_whose_channels_are_not_on_axis_1_computes_in_numpy(caplog):
    with caplog.at_level(logging.INFO, "scaffe"):
        net = assert_engines_agree(convolution(2, "kernel_size: 2 axis: 2"), (2, 3, 2, 4, 3))
    assert not is_fast(net, "it")
    assert "layer 'it' (Convolution) computes in numpy" in caplog.text


@given(data=st.data())
def test_deconvolutions_agree(data):
    group = data.draw(st.sampled_from([1, 1, 2, 3, 16]), "group")
    inputs, outputs = (group * data.draw(st.integers(1, 5)) for _ in "io")
    kernel, stride = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4))), data.draw(st.integers(1, 3))
    pad, dilation = data.draw(st.integers(0, 2)), data.draw(st.integers(1, 2))
    size = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 6)), "size")
    assume(all(stride * (n - 1) + dilation * (k - 1) + 1 > 2 * pad for n, k in zip(size, kernel, strict=True)))
    bias, relu = data.draw(st.booleans(), "bias"), data.draw(st.booleans(), "relu")
    fields = f"kernel_h: {kernel[0]} kernel_w: {kernel[1]} stride: {stride} pad: {pad} dilation: {dilation}"
    fields += f" num_output: {outputs} group: {group} bias_term: {str(bias).lower()}"
    text = layer("Deconvolution", f"convolution_param {{ {fields} }}") + RELU * relu
    assert_engines_agree(text, (data.draw(st.integers(1, 3), "images"), inputs, *size), passes=2)


@pytest.mark.parametrize("shape", [(2, 4, 9), (2, 16, 5, 6), (2, 3, 5, 6, 4)])
@pytest.mark.parametrize("group", [1, 2])
def test_usual_deconvolutions_are_fast(shape, group):
    shape = (shape[0], shape[1] * group, *shape[2:])
    fields = f"convolution_param {{ num_output: 6 kernel_size: 4 stride: 2 pad: 1 group: {group} }}"
    assert is_fast(assert_engines_agree(layer("Deconvolution", fields), shape), "it")


@given(data=st.data())
def test_pooling_agrees(data):
    kind = data.draw(st.sampled_from(["MAX", "AVE"]))
    kernel, stride = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    pad = data.draw(st.integers(0, kernel - 1))
    height, width = data.draw(sizes), data.draw(sizes)
    assume(min(height, width) + 2 * pad >= kernel and stride <= kernel)
    fields = f"pooling_param {{ pool: {kind} kernel_size: {kernel} stride: {stride} pad: {pad} }}"
    shape = data.draw(st.integers(1, 2)), data.draw(st.sampled_from([1, 3, 16, 20])), height, width
    assert_engines_agree(layer("Pooling", fields), shape)
    assert_engines_agree(
        convolution(shape[1], "kernel_size: 1", top="c", name="c") + layer("Pooling", fields, ["c"]), shape
    )


@pytest.mark.parametrize("pool", ["MAX", "AVE"])
@pytest.mark.parametrize("before", [None, "lrn_param { local_size: 5 }", "lrn_param { local_size: 3 }"])
def test_pooling_of_whole_blocks_of_channels_walks_no_single_numbers(pool, before):
    """Also behind an LRN, which oneDNN lacks without AVX-512, so that its top is plain."""
    lrn = convolution(32, "kernel_size: 1", top="c", name="c") + layer("LRN", before, ["c"], "n", "n") if before else ""
    fields = f"pooling_param {{ pool: {pool} kernel_size: 3 stride: 2 }}"
    net = assert_engines_agree(lrn + layer("Pooling", fields, ["n" if before else "x0"]), (2, 32, 9, 7), passes=2)
    primitives = net.layers[-1]._primitives
    kernels = [primitives.run_forward.desc.implementation, primitives.on_backward.implementation]
    assert not [kernel for kernel in kernels if kernel.startswith(("simple", "ref"))]


@pytest.mark.parametrize("pool", ["MAX", "AVE"])
def test_global_pooling_agrees(pool):
    fields = f"pooling_param {{ pool: {pool} global_pooling: true }}"
    assert is_fast(assert_engines_agree(layer("Pooling", fields), (2, 16, 7, 5)), "it")


def test_average_windows_that_oneDNN_lacks_compute_in_numpy(caplog):
    fields = "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }"
    with caplog.at_level(logging.INFO, "scaffe"):
        assert not is_fast(assert_engines_agree(layer("Pooling", fields), (2, 3, 6, 6)), "it")
    assert "layer 'it' (Pooling) computes in numpy: average windows" in caplog.text


def test_places_of_the_largest_values_come_from_numpy():
    text = 'layer { name: "it" type: "Pooling" bottom: "x0" top: "y" top: "place" pooling_param { kernel_size: 2 } }'
    assert not is_fast(assert_engines_agree(text, (2, 3, 5, 5)), "it")


@pytest.mark.parametrize("slope", [0, 0.25])
@pytest.mark.parametrize("top", ["y", "c"])
def test_relu_agrees_in_and_out_of_place(slope, top):
    text = convolution(20, "kernel_size: 3", top="c", name="c")
    text += layer("ReLU", f"relu_param {{ negative_slope: {slope} }}", ["c"], top=top)
    assert is_fast(assert_engines_agree(text, (2, 3, 7, 5)), "it")


@pytest.mark.parametrize("shape", [(3,), (2, 5), (2, 3, 4), (2, 3, 4, 5), (1, 2, 2, 3, 2)])
def test_relu_of_plain_blobs_agrees(shape):
    assert_engines_agree(layer("ReLU", ""), shape)


@given(
    channels=st.sampled_from([1, 3, 16, 20, 32]),
    size=st.sampled_from([1, 3, 5, 7]),
    beta=st.sampled_from([0.5, 0.75, 1.0]),
    k=st.sampled_from([1.0, 2.0]),
    blocked=st.booleans(),
)
def test_lrn_agrees(channels, size, beta, k, blocked):
    fields = f"lrn_param {{ local_size: {size} alpha: 0.3 beta: {beta} k: {k} }}"
    first = convolution(channels, "kernel_size: 1", top="c", name="c") if blocked else ""
    assert_engines_agree(first + layer("LRN", fields, ["c" if blocked else "x0"]), (2, channels, 5, 4))


def test_lrn_within_channels_computes_in_numpy():
    fields = "lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL }"
    assert not is_fast(assert_engines_agree(layer("LRN", fields), (2, 3, 5, 4)), "it")


@given(
    shape=st.lists(st.integers(2, 5), min_size=1, max_size=4).map(tuple),
    axis=st.integers(-1, 1),
    channels=st.sampled_from([3, 16, 20]),
    blocked=st.booleans(),
    in_place=st.booleans(),
)
def test_softmax_agrees(shape, axis, channels, blocked, in_place):
    assume(axis < len(shape))
    blocked &= len(shape) > 2
    first = convolution(channels, "kernel_size: 1 bias_term: false", top="c", name="c") if blocked else ""
    bottom = "c" if blocked else "x0"
    top = bottom if in_place else "y"
    assert_engines_agree(first + layer("Softmax", f"softmax_param {{ axis: {axis} }}", [bottom], top), shape)


@pytest.mark.parametrize("text", ["", convolution(16, "kernel_size: 1", top="x", name="x")])
def test_softmax_of_classes_in_rows_and_in_blocks_is_fast(text, caplog):
    """On AVX-512; on others it may compute in numpy, where oneDNN has its reference implementation alone."""
    shape = (2, 5, 3, 4) if text else (3, 7)
    with caplog.at_level(logging.INFO, "scaffe"):
        net = assert_engines_agree(text + layer("Softmax", "", ["x" if text else "x0"]), shape)
    assert is_fast(net, "it") or not uses(AVX512)
    reason = (
        r"\(Softmax\) computes in numpy: softmax_backward of axis 1 of \(.*\) has the implementation 'ref:any' alone"
    )
    assert is_fast(net, "it") != bool(re.search(reason, caplog.text))


@pytest.mark.parametrize("phase", [scaffe.TRAIN, scaffe.TEST])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("channels", [0, 16, 20])
def test_dropout_drops_the_same_values(phase, in_place, channels):
    text = convolution(channels, "kernel_size: 1", top="c", name="c") if channels else ""
    bottom = "c" if channels else "x0"
    text += layer("Dropout", "dropout_param { dropout_ratio: 0.3 }", [bottom], bottom if in_place else "y")
    net = assert_engines_agree(text, (3, 4, 5, 3), passes=2, phase=phase)
    assert is_fast(net, "it") == (in_place or phase == scaffe.TRAIN)


@given(
    rows=st.integers(1, 5),
    inputs=st.integers(1, 40),
    outputs=st.integers(1, 70),
    transpose=st.booleans(),
    bias=st.booleans(),
)
def test_inner_products_agree(rows, inputs, outputs, transpose, bias):
    flags = f"transpose: {str(transpose).lower()} bias_term: {str(bias).lower()}"
    text = layer("InnerProduct", f"inner_product_param {{ num_output: {outputs} {flags} }}")
    assert_engines_agree(text, (rows, inputs), passes=2)


def test_inner_product_after_a_blocked_blob_agrees():
    text = convolution(20, "kernel_size: 3", top="c", name="c")
    text += layer("InnerProduct", "inner_product_param { num_output: 40 }", ["c"])
    assert_engines_agree(text, (3, 3, 6, 5))


@pytest.mark.parametrize(("channels", "fast"), [((16, 32, 16), True), ((20, 12, 3), False)])
def test_concat_and_split_agree(channels, fast):
    tops = [f"c{i}" for i in range(len(channels))]
    text = convolution(16, "kernel_size: 3", top="c", name="c")
    text += "".join(
        convolution(n, "kernel_size: 1", bottoms=["c"], top=t, name=t) for n, t in zip(channels, tops, strict=True)
    )
    net = assert_engines_agree(text + layer("Concat", "", tops) + RELU, (2, 3, 7, 7), passes=2)
    assert is_fast(net, "it") == fast


def test_gradients_agree_with_finite_differences():
    """The net is a polynomial of low degree in each number, but for LRN, so that a long step does no harm."""
    text = convolution(16, "kernel_size: 3 pad: 1 group: 1", top="a", name="a")
    text += layer("LRN", "lrn_param { local_size: 5 alpha: 0.1 }", ["a"], "b", "b")
    text += layer("Pooling", "pooling_param { pool: AVE kernel_size: 2 stride: 2 }", ["b"], "c", "c")
    text += layer("InnerProduct", "inner_product_param { num_output: 33 }", ["c"])
    net = build(text, (2, 3, 5, 5))
    found = run(net)
    blobs = {"x0": net.blobs["x0"], **{f"{name}[{i}]": b for name, bs in net.params.items() for i, b in enumerate(bs)}}
    for name, blob in blobs.items():
        slope, gradient, norm = directional_slope(net, blob, found[f"{name} diff"])
        assert abs(gradient - slope) < 1e-3 * norm, name


def test_gradients_of_smooth_layers_agree_with_finite_differences():
    text = layer("Deconvolution", "convolution_param { num_output: 16 kernel_size: 2 stride: 2 }", top="a", name="a")
    text += convolution(16, "kernel_size: 2 stride: 2", bottoms=["a"], top="b", name="b")
    text += convolution(16, "kernel_size: 1", top="c", name="c")
    text += layer("Eltwise", "eltwise_param { coeff: 1 coeff: -0.5 }", ["b", "c"], "d", "d")
    text += layer("TanH", "", ["d"], "d", "e") + layer("Softmax", "", ["d"])
    net = build(text, (2, 3, 3, 3))
    found = run(net)
    blobs = {"x0": net.blobs["x0"], **{f"{name}[{i}]": b for name, bs in net.params.items() for i, b in enumerate(bs)}}
    for name, blob in blobs.items():
        slope, gradient, norm = directional_slope(net, blob, found[f"{name} diff"])
        assert abs(gradient - slope) < 1e-3 * norm, name


def test_a_test_phase_net_agrees():
    text = convolution(20, "kernel_size: 3", top="c", name="c") + layer("ReLU", "", ["c"], "c", "r")
    text += layer("Pooling", "pooling_param { kernel_size: 2 stride: 2 }", ["c"])
    assert_engines_agree(text, (2, 3, 9, 9), phase=scaffe.TEST)


def test_a_layer_that_asks_for_caffes_engine_computes_in_numpy(caplog):
    caplog.set_level("INFO")
    text = layer("ReLU", "relu_param { engine: ENGINE negative_slope: 0.1 }")
    for engine, fast in (("CAFFE", False), ("CUDNN", True), ("DEFAULT", True)):
        net = assert_engines_agree(text.replace("ENGINE", engine), (2, 3, 5, 5))
        assert hasattr(net.layer_dict["it"], "_primitives") == fast
    assert caplog.messages.count("layer 'it' (ReLU) computes in numpy: it says engine: CAFFE") == 1
