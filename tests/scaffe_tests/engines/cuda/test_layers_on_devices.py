"""Every layer over a GPU's arrays, its reference form and the CUDA engine's, has the numbers that it has over numpy.

Over arrays as strict as CuPy's; with SCAFFE_ON_GPU=1 over CuPy's own, on a GPU.
"""

from __future__ import annotations

import numpy as np
import pytest
from both_engines import assert_alike
from google.protobuf import text_format
from strict_arrays import a_gpu
from test_layers_of_forks import HEADS, LEARNING

import scaffe
from scaffe import engines
from scaffe.compute import Compute
from scaffe.layers.layer import known_types
from scaffe.proto import NetParameter

LOOSE = {"LRN", "MVN", "BatchNorm", "LSTM", "RNN", "LSTMUnit", "Softmax", "Log"}  # many roundings, one after the other
# Whose values come from files or from a user's module, or that have none.
ELSEWHERE = {
    "AnnotatedData",
    "ConvolutionDepthwise",  # another name of DepthwiseConvolution
    "MultiBoxLoss",
    "Data",
    "HDF5Data",
    "HDF5Output",
    "ImageData",
    "MemoryData",
    "Python",
    "WindowData",
    "DummyData",
    "Silence",
}

MAPS = "x:3,8,9,7"
FILLER = 'weight_filler { type: "gaussian" }'
CONVOLUTION = f"convolution_param {{ num_output: 6 {FILLER} "
POOLING = "pooling_param { kernel_size: 3 stride: 2 "
SEQUENCE = "x:4,3,6 cont:4,3"
NORM = "batch_norm_param { eps: 0.001 moving_average_fraction: 0.9 } param { lr_mult: 0 } param { lr_mult: 0 }"
# A layer's type, its bottoms and their shapes, its tops and its parameters.
CASES = [
    ("AbsVal", MAPS, "y", ""),
    ("Accuracy", "x:6,5 label:6", "y", "accuracy_param { top_k: 2 }"),
    ("ArgMax", "x:3,5,2", "y", "argmax_param { axis: 1 top_k: 2 out_max_val: true }"),
    ("BNLL", MAPS, "y", ""),
    ("BatchNorm", MAPS, "y", NORM),
    ("BatchNorm", "x:70,3,12,12", "y", NORM),
    ("BatchNorm", "x:100,2,9,11", "y", NORM),
    ("BatchNorm", "x:7,5", "y", NORM.replace("eps", "use_global_stats: true eps")),
    ("BatchReindex", "x:5,3 label:7", "y", ""),
    ("Bias", MAPS, "y", "bias_param { axis: 1 }"),
    ("Clip", MAPS, "y", "clip_param { min: -0.5 max: 0.75 }"),
    ("Concat", "x:2,3,4 z:2,5,4", "y", "concat_param { axis: 1 }"),
    ("ContrastiveLoss", "x:6,4 z:6,4 same:6", "y", "contrastive_loss_param { margin: 2 }"),
    ("Convolution", MAPS, "y", CONVOLUTION + "kernel_size: 3 pad: 1 stride: 2 group: 2 }"),
    ("Convolution", MAPS, "y", CONVOLUTION + "kernel_size: 1 bias_term: false }"),
    ("Convolution", MAPS, "y", CONVOLUTION + "kernel_h: 3 kernel_w: 2 dilation: 2 }"),
    ("Convolution", "x:2,3,5,4,4", "y", CONVOLUTION + "kernel_size: 2 }"),
    ("Crop", "x:2,3,6,6 z:2,3,4,5", "y", "crop_param { axis: 2 offset: 1 }"),
    ("Deconvolution", MAPS, "y", CONVOLUTION + "kernel_size: 3 stride: 2 pad: 1 group: 2 }"),
    ("Dropout", MAPS, "y", "dropout_param { dropout_ratio: 0.4 }"),
    ("ELU", MAPS, "y", "elu_param { alpha: 0.5 }"),
    ("Eltwise", "x:3,5 z:3,5 w:3,5", "y", "eltwise_param { operation: PROD }"),
    ("Eltwise", "x:3,700 z:3,700", "y", ""),
    ("Eltwise", "x:3,7 z:3,7 w:3,7", "y", "eltwise_param { operation: SUM coeff: 1 coeff: -2 coeff: 0.5 }"),
    ("Eltwise", "x:3,4 z:3,4 w:3,4", "y", "eltwise_param { operation: MAX }"),
    ("Embed", "label:7", "y", f"embed_param {{ num_output: 3 input_dim: 5 {FILLER} }}"),
    ("EuclideanLoss", "x:6,4 z:6,4", "y", ""),
    ("Exp", MAPS, "y", "exp_param { base: 2 scale: 0.5 shift: 1 }"),
    ("Filter", "x:5,2,3 same:5", "y", ""),
    ("Flatten", MAPS, "y", ""),
    ("HingeLoss", "x:6,5 label:6", "y", "hinge_loss_param { norm: L2 }"),
    ("Im2col", MAPS, "y", "convolution_param { kernel_size: 3 pad: 1 stride: 2 }"),
    ("InfogainLoss", "x:6,5 label:6 positive:1,1,5,5", "y", ""),
    ("InnerProduct", MAPS, "y", f"inner_product_param {{ num_output: 5 {FILLER} }}"),
    ("InnerProduct", MAPS, "y", f"inner_product_param {{ num_output: 5 axis: 2 transpose: true {FILLER} }}"),
    ("LRN", MAPS, "y", "lrn_param { local_size: 5 alpha: 0.5 beta: 0.75 k: 2 }"),
    ("LRN", "x:2,40,5,5", "y", "lrn_param { local_size: 3 alpha: 0.1 beta: 0.5 }"),
    ("LRN", MAPS, "y", "lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL }"),
    ("LSTM", SEQUENCE, "y", f"recurrent_param {{ num_output: 5 {FILLER} }}"),
    ("LSTM", "x:3,4,2 cont:3,4", "y", f"recurrent_param {{ num_output: 5 batch_first: true reverse: true {FILLER} }}"),
    ("LSTMUnit", "c:1,3,5 x:1,3,20 cont:1,3", "y h", ""),
    ("Log", "positive:3,5", "y", "log_param { base: 10 shift: 0.5 }"),
    ("MVN", MAPS, "y", "mvn_param { across_channels: true }"),
    ("MultinomialLogisticLoss", "positive:6,5 label:6", "y", ""),
    ("PReLU", MAPS, "y", "prelu_param { filler { value: 0.25 } }"),
    ("Parameter", "", "y", "parameter_param { shape { dim: 3 dim: 2 } }"),
    *(("Pooling", MAPS, "y", f"{POOLING} pool: {pool} {more} }}")
      for pool in ("MAX", "AVE") for more in ("", "pad: 1", "round_mode: FLOOR")),
    ("Pooling", MAPS, "y w", POOLING + "pool: MAX }"),
    ("Pooling", MAPS, "y", "pooling_param { pool: AVE global_pooling: true }"),
    ("Pooling", MAPS, "y", POOLING + "pool: STOCHASTIC }"),
    ("Power", "positive:3,4", "y", "power_param { power: 1.5 scale: 2 shift: 0.5 }"),
    ("RNN", SEQUENCE, "y", f"recurrent_param {{ num_output: 5 {FILLER} }}"),
    ("ReLU", MAPS, "y", "relu_param { negative_slope: 0.1 }"),
    ("Reduction", "x:3,4,5", "y", "reduction_param { operation: SUMSQ axis: 1 coeff: 2 }"),
    ("Reshape", "x:3,4,5", "y", "reshape_param { shape { dim: 0 dim: -1 } }"),
    ("SPP", "x:2,3,9,9", "y", "spp_param { pyramid_height: 3 }"),
    ("Scale", MAPS, "y", "scale_param { bias_term: true }"),
    ("Scale", "x:100,2,9,11", "y", "scale_param { bias_term: true } param { lr_mult: 0 }"),
    ("Scale", "x:70,3,12,12", "x", "scale_param { bias_term: true }"),
    ("Scale", "x:4,6", "y", "scale_param { num_axes: 0 }"),
    ("Scale", "x:4,6,5 z:4,6", "y", "scale_param { axis: 0 }"),
    ("Sigmoid", MAPS, "y", ""),
    ("SigmoidCrossEntropyLoss", "x:6,4 same:6,4", "y", ""),
    ("Slice", "x:2,7,3", "y w", "slice_param { axis: 1 slice_point: 3 }"),
    ("Softmax", "x:3,5,2,2", "y", ""),
    ("Softmax", "x:3,1000", "y", ""),
    ("SoftmaxWithLoss", "x:6,5 label:6", "y", ""),
    ("SoftmaxWithLoss", "x:3,5,2,2 label:3,1,2,2", "y", "loss_param { ignore_label: 2 normalization: BATCH_SIZE }"),
    ("Split", MAPS, "y w", ""),
    ("Swish", MAPS, "y", "swish_param { beta: 1.5 }"),
    ("TanH", MAPS, "y", ""),
    ("Threshold", MAPS, "y", "threshold_param { threshold: 0.25 }"),
    ("Tile", "x:3,4,2", "y", "tile_param { axis: 1 tiles: 3 }"),
]  # fmt: skip
FILLS = {
    "label": lambda rng, shape: rng.integers(0, 5, shape),
    "same": lambda rng, shape: rng.integers(0, 2, shape),
    "cont": lambda rng, shape: np.arange(np.prod(shape)).reshape(shape) % 5 > 0,
    "positive": lambda rng, shape: rng.uniform(0.1, 1, shape),
}
NO_GRADIENT = "Accuracy", "ArgMax", "Threshold"


def net_of(case, **how) -> scaffe.Net:
    """Return the net of one layer over its bottoms, filled with random numbers."""
    kind, bottoms, tops, param = case
    shapes = {name: sizes.split(",") for name, _, sizes in (one.partition(":") for one in bottoms.split())}
    text = "force_backward: true\n"
    for name, shape in shapes.items():
        dims = " ".join(f"dim: {size}" for size in shape)
        text += f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}\n'
    blobs = " ".join([f'bottom: "{name}"' for name in shapes] + [f'top: "{name}"' for name in tops.split()])
    net = scaffe.Net(
        text_format.Parse(f'{text} layer {{ name: "it" type: "{kind}" {blobs} {param} }}', NetParameter()),
        scaffe.TRAIN,
        **how,
    )
    rng = np.random.default_rng(0)
    for name in shapes:
        blob = net.blobs[name]
        blob.data[...] = FILLS.get(name, lambda rng, shape: rng.standard_normal(shape))(rng, blob.shape)
    for blob in net.params.get("it", []):
        blob.data[...] = (
            rng.uniform(0.1, 1, blob.shape) / 4 if case[0] == "BatchNorm" else rng.standard_normal(blob.shape) / 4
        )
    return net


def computed(case, **how) -> dict[str, np.ndarray]:
    """Run two passes forward and backward; return all that they gave."""
    net, rng = net_of(case, **how), np.random.default_rng(1)
    net.clear_param_diffs()
    found = {}
    for number in range(2):
        net.forward()
        found |= {f"{name} {number}": blob.data.copy() for name, blob in net.blobs.items()}
        if case[0] in NO_GRADIENT:
            continue
        for name in case[2].split():
            net.blobs[name].diff[...] = rng.standard_normal(net.blobs[name].shape)
        net.backward()
    found |= {f"{name} diff": net.blobs[name].diff.copy() for name in net.inputs if name not in FILLS}
    for i, blob in enumerate(net.params.get("it", [])):
        found |= {f"parameter {i}": blob.data.copy(), f"parameter {i} diff": blob.diff.copy()}
    return found


def test_no_layer_is_left_out():
    of_forks = {case[0].split('type: "')[-1].split('"')[0] for case in (*LEARNING, *HEADS)}
    assert {kind for kind, *_ in CASES} | of_forks | ELSEWHERE | {"Input"} == {*known_types()}


@pytest.mark.parametrize("engine", ["reference", "auto"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(filter(None, (case[0], case[1]))))
def test_a_layer_on_a_gpu_has_the_numbers_of_the_host(case, engine):
    expected = computed(case, engine="reference")
    assert_alike(
        computed(case, engine=engines.create(Compute(engine), a_gpu())), expected, 1e-4 if case[0] in LOOSE else 1e-5
    )
