"""ONNX models of nets: the numbers of onnxruntime are those of the net, to 1e-5 of the largest value."""

import numpy as np
import pytest
from deploy_draw import DeployDraw
from google.protobuf import text_format
from onnx_runs import built, compare, inputs, run

from scaffe import models
from scaffe.errors import ScaffeError, ShapeError
from scaffe.layers.layer import known_types
from scaffe.onnx import out
from scaffe.onnx.model import Preparation, model_of
from scaffe.onnx.writers import writers
from scaffe.proto import NetParameter

CLOSE = 1e-5
# Layers of training alone, and what a model can't hold.
WITHOUT = {"Accuracy", "DetectionEvaluate", "HDF5Output", "Input", "Python"}
# Layers of forks, of boxes and regions, and one that reads another's places.
NOT_YET = {
    "DetectionOutput", "PSROIPooling", "PriorBox", "ROIPooling", "Region", "Upsample", "YoloDetectionOutput",
}  # fmt: skip


def net(text):
    return built(text_format.Parse(text, NetParameter()))


def given(name, *dims):
    shape = " ".join(f"dim: {n}" for n in dims)
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {shape} }} }} }}'


def layer(kind, bottoms, tops, fields=""):
    blobs = " ".join([f'bottom: "{b}"' for b in bottoms.split()] + [f'top: "{t}"' for t in tops.split()])
    return f'layer {{ name: "{kind.lower()}" type: "{kind}" {blobs} {fields} }}'


def test_every_layer_of_a_deploy_net_has_a_writer():
    out.discover()
    deployed = {kind for kind in known_types() if not kind.endswith(("Data", "Loss"))}
    assert deployed - set(writers()) == WITHOUT | NOT_YET


@pytest.mark.parametrize("seed", range(30))
def test_random_nets(seed):
    assert compare(built(text_format.Parse(DeployDraw(seed).text, NetParameter()))) < CLOSE


@pytest.mark.parametrize("name", ["lenet", "cifar10_quick", "cifar10_full", "cifar10_full_sigmoid_bn"])
def test_small_nets_of_ours(name):
    assert compare(built(models.get(name).deploy(2))) < CLOSE


def test_a_translator_and_a_language_model():
    gnmt = models.get("gnmt").sized(hidden=6, layers=2, steps=4, source_words=30).deploy(2, classes=20)
    assert compare(built(gnmt), {"source": 20, "target": 20, "cont": 2, "back": 2}) < CLOSE
    words = models.get("word_lm").deploy(2, classes=20)
    assert compare(built(words), {"words": 20, "cont": 2}) < CLOSE


FILLERS = "weight_filler { type: 'uniform' min: -0.5 max: 0.5 } bias_filler { type: 'uniform' }"


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
@pytest.mark.parametrize("how", ["", "static", "expose_hidden: true", "reverse: true", "batch_first: true"])
def test_recurrent_layers(kind, how):
    text = given("x", 3, 2, 5) + given("cont", 3, 2)
    bottoms, tops = "x cont", "y"
    if how == "static":
        text, bottoms, how = text + given("static", 2, 4), bottoms + " static", ""
    if how.startswith("expose"):
        states = ["h", "c"][: 2 if kind == "LSTM" else 1]
        text += "".join(given(name, 1, 2, 6) for name in states)
        bottoms, tops = f"{bottoms} {' '.join(states)}", f"y {' '.join(f'{name}_end' for name in states)}"
    text += layer(kind, bottoms, tops, f"recurrent_param {{ num_output: 6 {how} {FILLERS} }}")
    assert compare(net(text), {"cont": 2}) < CLOSE


def test_a_step_of_an_lstm():
    text = given("c", 1, 2, 3) + given("gates", 1, 2, 12) + given("cont", 1, 2)
    assert compare(net(text + layer("LSTMUnit", "c gates cont", "cell hidden")), {"cont": 2}) < CLOSE


def test_layers_that_choose_samples():
    text = given("x", 4, 3) + given("chosen", 4)
    assert compare(net(text + layer("BatchReindex", "x chosen", "y")), {"chosen": 4}) < CLOSE
    assert compare(net(text + layer("Filter", "x chosen", "y")), {"chosen": 2}) < CLOSE


@pytest.mark.parametrize("fields", ["", "top_k: 3", "out_max_val: true top_k: 2", "axis: 1 top_k: 2", "axis: -1"])
def test_of_equal_values_arg_max_gives_the_highest_index(fields):
    made = net(given("x", 2, 3, 4) + layer("ArgMax", "x", "y", f"argmax_param {{ {fields} }}"))
    assert compare(made, {"x": 3}) == 0


@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution", "Im2col"])
@pytest.mark.parametrize(("shape", "axis"), [((2, 4, 7), 1), ((2, 4, 5, 6, 4), 1), ((2, 3, 4, 5, 6), 2), ((2, 4), 1)])
def test_convolutions_over_any_number_of_axes(kind, shape, axis):
    space = len(shape) - axis - 1
    window = " ".join(f"kernel_size: {2 + i % 2} stride: {1 + i % 2} pad: 1" for i in range(space))
    fields = f"axis: {axis} {window}"
    if kind != "Im2col":
        fields += f" num_output: 6 group: 2 {FILLERS}"
    assert compare(net(given("x", *shape) + layer(kind, "x", "y", f"convolution_param {{ {fields} }}"))) < CLOSE


def test_a_threshold_constants_and_a_blob_that_nobody_reads():
    text = given("x", 2, 3) + layer("Threshold", "x", "y", "threshold_param { threshold: 0.2 }")
    text += layer("DummyData", "", "d", "dummy_data_param { shape { dim: 2 dim: 3 } data_filler { value: 4 } }")
    made = net(text + layer("Eltwise", "y d", "z") + layer("Silence", "x", ""))
    assert compare(made) == 0 and made.outputs == ["z"]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("BN", "bn_param { scale_filler { type: 'uniform' } }"),
        ("BN", "bn_param { bn_mode: INFERENCE scale_filler { type: 'uniform' } shift_filler { type: 'uniform' } }"),
        ("BN", "bn_param { eps: 0.1 slope_filler { type: 'uniform' } }"),
        ("CReLU", ""),
        ("DepthwiseConvolution", "convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'xavier' } }"),
        ("ConvolutionDepthwise", "convolution_param { num_output: 4 kernel_size: 1 weight_filler { type: 'xavier' } }"),
        ("HardSwish", ""),
        ("Interp", "interp_param { height: 9 width: 4 }"),
        ("Interp", "interp_param { zoom_factor: 2 pad_beg: -1 }"),
        ("L2Normalization", ""),
        ("Mish", ""),
        ("Normalize", "norm_param { channel_shared: false scale_filler { type: 'uniform' } }"),
        ("Normalize", "norm_param { across_spatial: false scale_filler { value: 20 } }"),
        ("Permute", "permute_param { order: 0 order: 2 order: 3 }"),
        ("ReLU6", ""),
        ("ReLU6", "relu6_param { negative_slope: 0.1 }"),
        ("Reorg", "reorg_param { stride: 2 }"),
        ("Reorg", "reorg_param { stride: 2 reverse: true }"),
        ("ShuffleChannel", "shuffle_channel_param { group: 2 }"),
    ],
)
def test_layers_of_forks(kind, fields):
    text = given("x", 2, 4, 6, 6) + layer("Power", "x", "y", "power_param { scale: 4 }")
    assert compare(net(text + layer(kind, "y", "z", fields))) < CLOSE


def test_the_excitation_of_a_fork():
    text = given("a", 2, 4, 1, 1) + given("x", 2, 4, 3, 5) + given("z", 2, 4, 3, 5)
    assert compare(net(text + layer("Axpy", "a x z", "y"))) < CLOSE


def test_stochastic_pooling_of_zeros_is_zero():
    fields = "pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 2 }"
    made = net(given("x", 1, 1, 5, 5) + layer("Pooling", "x", "y", fields))
    model, x = model_of(made), np.zeros((1, 1, 5, 5), np.float32)
    assert not run(model, {"x": x})["y"].any()


CHAIN = given("x", 2, 3, 4, 4) + layer("ReLU", "x", "a") + layer("Power", "a", "a", "power_param { shift: 1 }")


def test_blobs_keep_their_names_also_those_of_layers_in_place():
    text = CHAIN + layer("Dropout", "a", "b") + layer("Softmax", "b", "c") + layer("TanH", "b", "d")
    made = net(text)
    model = model_of(made)
    names = {name for node in model.graph.node for name in node.output}
    assert {"a", "b", "c", "d"} <= names and not any("split" in name for name in names)
    for blob in ("a", "b"):
        model.graph.output.add().name = blob
    x = inputs(made)
    found, ours = run(model, x), made.forward(blobs=["a", "b"], **x)
    assert all(np.allclose(found[blob], ours[blob], atol=1e-6) for blob in "abcd")


def test_an_output_that_is_an_input_or_another_output():
    made = net(given("x", 2, 3) + layer("Dropout", "x", "y") + layer("Split", "x", "p q"))
    assert compare(made) == 0


def test_shared_parameters_are_kept_once():
    share = "param { name: 'w' } param { name: 'b' }"
    first, second = (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" {share} '
        f"inner_product_param {{ num_output: 3 {FILLERS} }} }}"
        for name, bottom in (("one", "x"), ("two", "one"))
    )
    made = net(given("x", 2, 3) + first + second)
    assert compare(made) < CLOSE
    assert sum(len(one.dims) == 2 for one in model_of(made).graph.initializer) == 1


def test_a_net_that_mixes_samples_has_its_own_batch(caplog):
    text = given("x", 2, 3) + layer("Reshape", "x", "y", "reshape_param { shape { dim: 3 dim: 2 } }")
    (shape,) = (one.type.tensor_type.shape for one in model_of(net(text)).graph.input)
    assert [dim.dim_value for dim in shape.dim] == [2, 3]
    (free,) = (one.type.tensor_type.shape for one in model_of(net(CHAIN)).graph.input)
    assert [dim.dim_param or dim.dim_value for dim in free.dim] == ["N", 3, 4, 4]


def test_a_model_can_take_pixels():
    made = net(CHAIN)
    mean = np.array([1, 20, 30], np.float32)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 4)).astype(np.float32)
    found = run(model_of(made, Preparation(mean, 0.5)), {"x": pixels})["a"]
    assert np.allclose(found, made.forward(x=(pixels - mean[:, None, None]) * 0.5)["a"], rtol=1e-6)
    with pytest.raises(ShapeError, match=r"mean has shape \(2,\).*'x'.*one for each channel"):
        model_of(made, Preparation(mean[:2], 1.0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            layer("DummyData", "", "x", "dummy_data_param { shape { dim: 1 } data_filler { type: 'uniform' } }"),
            "random",
        ),
        (
            layer("MemoryData", "", "x y", "memory_data_param { batch_size: 1 channels: 1 height: 1 width: 1 }"),
            "deploy",
        ),
        (given("x", 2, 3) + given("t", 2, 3) + layer("EuclideanLoss", "x t", "l"), "labels.*deploy net"),
    ],
)
def test_what_a_model_cant_hold_is_told_with_the_layer(text, said):
    with pytest.raises(ScaffeError, match=rf"^layer '\w+' \(\w+\): .*{said}"):
        model_of(net(text))
