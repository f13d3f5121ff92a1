"""Layers that can't be: a field outside Caffe's range, shapes and counts that don't fit. Told alike on both engines."""

import re

import pytest
from both_engines import needs_onednn
from google.protobuf import text_format

import scaffe
from scaffe.compute import Compute
from scaffe.errors import NetError
from scaffe.proto import NetParameter

BLOBS = {"x": (2, 4, 8, 8), "v": (2, 6), "l": (2,)}
ENGINES = ["reference", pytest.param("onednn", marks=needs_onednn)]


def net(layer, engine):
    """Build the net of Inputs x, v and l, and a layer."""
    inputs = [
        f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims(shape)} }} }} }}'
        for name, shape in BLOBS.items()
    ]
    return scaffe.Net(
        text_format.Parse(" ".join([*inputs, layer]), NetParameter()), scaffe.TRAIN, compute=Compute(engine)
    )


def dims(shape):
    return " ".join(f"dim: {size}" for size in shape)


def layer(kind, fields, bottoms="x", tops="y"):
    """Return the text of a layer named `it`."""
    blobs = [f'bottom: "{name}"' for name in bottoms.split()] + [f'top: "{name}"' for name in tops.split()]
    return f'layer {{ name: "it" type: "{kind}" {" ".join(blobs)} {fields} }}'


def windowed(fields):
    return f"convolution_param {{ num_output: 4 {fields} }}"


def pooled(fields):
    return f"pooling_param {{ {fields} }}"


def filled(fields):
    return f"inner_product_param {{ num_output: 2 weight_filler {{ {fields} }} }}"


WINDOWS = [
    ("Convolution", "convolution_param { kernel_size: 3 }", "needs num_output, at least 1"),
    ("Convolution", windowed(""), "0 kernel_size for 2 spatial axes"),
    ("Convolution", windowed("kernel_size: 0"), "has kernel (0, 0); give at least 1"),
    ("Convolution", windowed("kernel_size: 3 stride: 0"), "has stride (0, 0); give at least 1"),
    ("Convolution", windowed("kernel_size: 3 dilation: 0"), "has dilation (0, 0); give at least 1"),
    ("Convolution", windowed("kernel_size: 3 group: 0"), "group 0 doesn't divide 4 channels"),
    ("Convolution", windowed("kernel_size: 3 group: 3"), "group 3 doesn't divide 4 channels"),
    (
        "Convolution",
        "convolution_param { num_output: 6 kernel_size: 3 group: 4 }",
        "group 4 doesn't divide 6 num_output",
    ),
    ("Convolution", windowed("kernel_size: 11 pad: 1"), "reaches over (11, 11), more than .*padded to (10, 10)"),
    ("Convolution", windowed("kernel_size: 3 dilation: 4"), "reaches over (9, 9), more than .*padded to (8, 8)"),
    ("Convolution", windowed("kernel_size: 3 kernel_h: 3 kernel_w: 3"), "give one form"),
    ("Convolution", windowed("kernel_h: 3"), "has kernel (3, 0)"),
    ("Convolution", windowed("kernel_size: 3 kernel_size: 3 kernel_size: 3"), "3 kernel_size for 2 spatial axes"),
    ("Convolution", windowed("kernel_size: 3 axis: 4"), "axis 4 of a bottom of shape (2, 4, 8, 8)"),
    ("Convolution", windowed("kernel_size: 4294967295"), "a parameter can't have the shape (4, 4, 4294967295, "),
    ("Convolution", windowed("kernel_size: 3 pad: 4294967295"), "a top can't have the shape (2, 4, 8589934596, "),
    ("Deconvolution", windowed("kernel_size: 3 pad: 9"), "pad (9, 9) leaves a top of size (-8, -8)"),
    ("Deconvolution", windowed("kernel_size: 3 group: 3"), "group 3 doesn't divide 4 channels"),
    ("Im2col", "convolution_param { kernel_size: 9 }", "reaches over (9, 9), more than"),
    ("Pooling", pooled(""), "kernel (0, 0) with stride (1, 1)"),
    ("Pooling", pooled("kernel_size: 2 stride: 0"), "kernel (2, 2) with stride (0, 0)"),
    ("Pooling", pooled("kernel_size: 2 pad: 2"), "pad (2, 2) must be smaller than the kernel (2, 2)"),
    ("Pooling", pooled("kernel_size: 9"), "kernel (9, 9) is larger than the bottom (2, 4, 8, 8)"),
    ("Pooling", pooled("kernel_h: 3"), "either kernel_size or both kernel_h and kernel_w"),
    ("Pooling", pooled("kernel_size: 3 stride: 2 stride_h: 2 stride_w: 2"), "either stride or both"),
    ("Pooling", pooled("global_pooling: true kernel_size: 3"), "leave out kernel sizes, stride and pad"),
    ("Pooling", pooled("kernel_size: 3 pool: STOCHASTIC pad: 1"), "pool: STOCHASTIC takes no padding"),
    ("SPP", "spp_param { }", "needs pyramid_height, at least 1"),
    ("SPP", "spp_param { pyramid_height: 9 }", "too small for 16 x 16 windows; lower pyramid_height"),
]
# More than a process can address, so that no machine gives it.
HUGE = "convolution_param { num_output: 4294967295 kernel_size: 56 pad: 28 }"
RANGES = [
    ("InnerProduct", "inner_product_param { num_output: 0 }", "needs num_output, at least 1"),
    ("InnerProduct", "inner_product_param { num_output: 2 axis: 5 }", "axis 5 of a bottom of shape (2, 4, 8, 8)"),
    ("Convolution", HUGE, "no memory for a parameter of shape (4294967295, 4, 56, 56): 2.16e+14 bytes"),
    ("InnerProduct", filled('type: "gaussian" std: -1'), "filler 'gaussian' has std -1; give 0 or more"),
    ("InnerProduct", filled('type: "uniform" min: 1 max: 0'), "filler 'uniform' has min 1 above max 0"),
    ("InnerProduct", filled('type: "xavier" sparse: 3'), "filler 'xavier' has sparse 3; 'gaussian' alone takes it"),
    ("InnerProduct", filled('type: "gaussian" sparse: -3'), "filler 'gaussian' has sparse -3"),
    ("InnerProduct", filled('type: "bilinear"'), "'bilinear' needs 4 axes with a square kernel, got shape (2, 256)"),
    ("LRN", "lrn_param { local_size: 4 }", "local_size is 4; give an odd number"),
    ("LRN", "lrn_param { local_size: 0 }", "local_size is 0; give an odd number"),
    ("Dropout", "dropout_param { dropout_ratio: 1.5 }", "dropout_ratio is 1.5; give a number from 0"),
    ("Dropout", "dropout_param { dropout_ratio: -0.5 }", "dropout_ratio is -0.5; give a number from 0"),
    ("Dropout", "dropout_param { dropout_ratio: nan }", "dropout_ratio must be a finite number, got nan"),
    (
        "BatchNorm",
        "batch_norm_param { moving_average_fraction: 1.5 }",
        "moving_average_fraction 1.5; give one from 0 to 1",
    ),
    (
        "BatchNorm",
        "batch_norm_param { moving_average_fraction: nan }",
        "fraction must be a finite number, got nan",
    ),
    ("BatchNorm", "batch_norm_param { eps: -1 }", "has eps -1; give 0 or more"),
    ("Exp", "exp_param { base: 0 }", "has base 0; give one above 0, or -1 for e"),
    ("Exp", "exp_param { base: nan }", "base must be a finite number, got nan"),
    ("Log", "log_param { base: -2 }", "has base -2; give one above 0 that is not 1, or -1 for e"),
    ("Log", "log_param { base: 1 }", "has base 1; give one above 0 that is not 1"),
    ("Log", "log_param { base: nan }", "base must be a finite number, got nan"),
    ("Clip", "clip_param { min: 1 }", "clip_param needs max"),
    ("Clip", "clip_param { min: 1 max: 0 }", "has min 1 above max 0"),
    ("ArgMax", "argmax_param { top_k: 0 }", "has top_k 0; give at least 1"),
    ("ArgMax", "argmax_param { axis: 1 top_k: 5 }", "top_k 5 exceeds the 4 values of a bottom of shape (2, 4, 8, 8)"),
    ("Tile", "tile_param { tiles: -2 }", "has tiles -2; give at least 1"),
    (
        "Scale",
        "scale_param { axis: 1 num_axes: 5 }",
        "num_axes 5 from axis 1 of a bottom of shape (2, 4, 8, 8)",
    ),
    ("Bias", "bias_param { num_axes: -2 }", "num_axes -2 from axis 1"),
    ("Flatten", "flatten_param { axis: 3 end_axis: 1 }", "has axis 3 behind end_axis 1"),
    ("Reduction", "reduction_param { axis: -5 }", "axis -5 of a bottom of shape (2, 4, 8, 8), which has 4 axes"),
    ("Softmax", "softmax_param { axis: 4 }", "axis 4 of a bottom of shape (2, 4, 8, 8), which has 4 axes"),
    (
        "Reshape",
        "reshape_param { shape { dim: -1 dim: -1 } }",
        "has dims [-1, -1]; give 0, positive numbers, and at most",
    ),
    ("Reshape", "reshape_param { shape { dim: -2 } }", "has dims [-2]; give 0, positive numbers"),
    ("Reshape", "reshape_param { shape { dim: 3 } }", "512 values of shape (2, 4, 8, 8) do not fit shape (3,)"),
    (
        "Reshape",
        "reshape_param { shape { dim: 3 dim: -1 } }",
        "512 values of shape (2, 4, 8, 8) cannot be divided into [3, -1]",
    ),
    ("Reshape", "reshape_param { axis: 2 num_axes: 5 shape { dim: -1 } }", "axis 2 and num_axes 5 for a bottom"),
    ("Reshape", "reshape_param { shape { dim: 0 dim: 0 dim: 0 dim: 0 dim: 0 } }", "dim 4 .* is 0, but bottom"),
    ("ReLU", "loss_weight: 1 loss_weight: 2", "2 loss_weight fields for 1 tops; give none, or one for each"),
    ("ReLU", "propagate_down: true propagate_down: true", "2 propagate_down fields for 1 bottoms"),
    (
        "Convolution",
        windowed("kernel_size: 1") + " param { } param { } param { }",
        "3 param fields for 2 parameter blob",
    ),
]
BLOBS_THAT_DO_NOT_FIT = [
    ("Concat", "", "x v", "y", "bottoms have shapes (2, 4, 8, 8) and (2, 6)"),
    ("Concat", "concat_param { axis: 4 }", "x x", "y", "axis 4 of a bottom of shape (2, 4, 8, 8), which has 4 axes"),
    ("Concat", "concat_param { axis: 1 concat_dim: 1 }", "x x", "y", "both axis and concat_dim; give axis alone"),
    ("Slice", "slice_param { axis: 4 }", "x", "a b", "axis 4 of a bottom of shape (2, 4, 8, 8), which has 4 axes"),
    (
        "Slice",
        "slice_param { slice_point: 1 slice_point: 2 }",
        "x",
        "a b",
        "2 slice_point for 2 tops; give one fewer",
    ),
    ("Slice", "slice_param { slice_point: 5 }", "x", "a b", "slice_point [5] must rise, inside axis 1 of shape"),
    ("Slice", "slice_param { slice_point: 3 slice_point: 1 }", "x", "a b c", "slice_point [3, 1] must rise"),
    ("Slice", "", "x", "a b c", "3 tops don't divide axis 1 of shape (2, 4, 8, 8); give slice_point"),
    ("Crop", "crop_param { axis: 2 offset: 1 }", "x x", "y", "offset 1 and 8 values on axis 2 reach beyond bottom 0"),
    ("Crop", "crop_param { offset: 1 offset: 1 offset: 1 }", "x x", "y", "3 offset for 2 cropped axes"),
    ("Eltwise", "eltwise_param { coeff: 1 }", "x x", "y", "has 1 coeff for 2 bottoms; give one per bottom"),
    ("Eltwise", "eltwise_param { operation: PROD coeff: 1 coeff: 1 }", "x x", "y", "which only operation: SUM takes"),
    ("Eltwise", "", "x v", "y", "bottoms have shapes (2, 4, 8, 8) and (2, 6)"),
    ("EuclideanLoss", "", "x v", "y", "(2, 4, 8, 8) and (2, 6)"),
    (
        "Accuracy",
        "accuracy_param { top_k: 7 }",
        "v l",
        "y",
        "top_k 7 needs as many classes, got scores of shape (2, 6)",
    ),
    (
        "SoftmaxWithLoss",
        "softmax_param { axis: 3 }",
        "v l",
        "y",
        "axis 3 of a bottom of shape (2, 6), which has 2 axes",
    ),
    ("Embed", "embed_param { num_output: 3 }", "l", "y", "needs input_dim, at least 1"),
    ("LSTM", "recurrent_param { num_output: 0 }", "x v", "y", "needs num_output, at least 1"),
    ("Pooling", pooled("kernel_size: 2 pool: AVE"), "x", "y z", "only pool: MAX has a second top"),
    ("Input", "input_param { shape { dim: 2 dim: -3 } }", "", "y", "has shape (2, -3); give each axis at least 1"),
    ("Input", "input_param { shape { dim: -1 } }", "", "y", "has shape (-1,); give each axis at least 1"),
    ("Input", "input_param { shape { dim: 1 } shape { dim: 1 } }", "", "y", "2 shapes for 1 tops; give none, one"),
    ("Parameter", "parameter_param { shape { dim: -2 } }", "", "y", "a parameter can't have the shape (-2,)"),
    ("DummyData", "dummy_data_param { shape { dim: 1 } shape { dim: 1 } }", "", "y", "2 shape for 1 tops; give one"),
    ("DummyData", "dummy_data_param { shape { dim: 0 } }", "", "y", "has shape (0,); give it axes, each at least 1"),
    ("DummyData", "dummy_data_param { shape { dim: 1 } num: 1 }", "", "y", "both shape and num, .*give shape alone"),
    (
        "DummyData",
        "dummy_data_param { num: 1 channels: 1 height: 1 }",
        "",
        "y",
        "0 width for 1 tops; give one, or one per top",
    ),
]
COUNTS = [
    ("Convolution", "", "y", "takes 1 or more bottoms, got 0"),
    ("Convolution", "x x", "y", "takes as many bottoms as tops, got 2 and 1"),
    ("ReLU", "x x", "y", "takes 1 bottom, got 2"),
    ("Sigmoid", "x", "a b", "takes 1 top, got 2"),
    ("Eltwise", "x", "y", "takes 2 or more bottoms, got 1"),
    ("SoftmaxWithLoss", "v", "y", "takes 2 bottoms (the prediction, labels), got 1"),
    ("Accuracy", "v", "y", "takes 2 bottoms (scores, labels), got 1"),
    ("EuclideanLoss", "v v v", "y", "takes 2 bottoms (the prediction, labels), got 3"),
    ("ContrastiveLoss", "v v", "y", "takes 3 bottoms (a, b, are they alike), got 2"),
    ("InfogainLoss", "v", "y", "takes 2 to 3 bottoms (scores, labels, weights unless source gives them), got 1"),
    ("Crop", "x", "y", "takes 2 bottoms (what to crop, one of the size wanted), got 1"),
    ("Filter", "x", "y", "takes 2 or more bottoms (what to filter, the selector last), got 1"),
    ("BatchReindex", "x", "y", "takes 2 bottoms (samples, indices), got 1"),
    ("Scale", "x x x", "y", "takes 1 to 2 bottoms (x, the operand unless it is learned), got 3"),
    ("LSTMUnit", "x", "a b", "takes 3 bottoms (the cell before, inputs of the gates, cont), got 1"),
    ("LSTM", "x", "y", "takes 2 to 5 bottoms, got 1"),
    ("Silence", "", "", "takes 1 or more bottoms, got 0"),
    ("Split", "x", "", "takes 1 or more tops, got 0"),
]


def told(text, engine):
    """Return what is said of a layer that can't be, which names it and is one line."""
    with pytest.raises(NetError, match=r"^layer 'it'") as error:
        net(text, engine)
    assert "\n" not in str(error.value)
    return str(error.value)


def says(message, said):
    """Say whether the parts of `said`, around `.*`, are in a message one after the other."""
    return re.search(".*".join(map(re.escape, said.split(".*"))), message)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("kind", "fields", "said"), WINDOWS + RANGES)
def test_a_field_out_of_range_is_told_with_its_value(kind, fields, said, engine):
    assert says(told(layer(kind, fields), engine), said)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("kind", "fields", "bottoms", "tops", "said"), BLOBS_THAT_DO_NOT_FIT)
def test_blobs_that_do_not_fit_are_told_with_their_shapes(kind, fields, bottoms, tops, said, engine):
    assert says(told(layer(kind, fields, bottoms, tops), engine), said)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("kind", "bottoms", "tops", "said"), COUNTS)
def test_another_number_of_blobs_is_told_with_what_the_layer_takes(kind, bottoms, tops, said, engine):
    fields = windowed("kernel_size: 1") if kind == "Convolution" else ""
    assert says(told(layer(kind, fields, bottoms, tops), engine), said)


ONCE_A_TOP = "num: 2 num: 3 channels: 1 height: 4 width: 5 width: 6"
ONCE = "num: 2 channels: 1 height: 4 width: 5"


@pytest.mark.parametrize(("fields", "second"), [(ONCE_A_TOP, (3, 1, 4, 6)), (ONCE, (2, 1, 4, 5))])
def test_old_fields_of_dummy_data_may_be_given_once_or_once_a_top(fields, second):
    built = net(layer("DummyData", f"dummy_data_param {{ {fields} }}", "", "a b"), "reference")
    assert [built.blobs[name].shape for name in "ab"] == [(2, 1, 4, 5), second]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pass_that_no_memory_holds_is_told_with_the_layer_and_its_shapes(engine):
    long = f'layer {{ name: "long" type: "Input" top: "long" input_param {{ shape {{ dim: 1 dim: {2**20} }} }} }}'
    built = net(long + layer("Tile", "tile_param { axis: 1 tiles: 60000000 }", "long"), engine)
    with pytest.raises(NetError, match=r"^layer 'it' \(Tile\): no memory for \[\(1, \d+\)\] -> \[\(1, \d+\)\]"):
        built.forward()
