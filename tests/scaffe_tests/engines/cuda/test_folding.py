"""First layers over folded images have the numbers of the reference, and are folded where that saves products."""

import numpy as np
import pytest
from both_engines import assert_alike, build, run
from cudnn_gpu import gpu_with

import scaffe
from scaffe import engines, models
from scaffe.compute import Compute
from scaffe.engines.cuda.cudnn import Problem
from scaffe.engines.cuda.folding import Folding

LAYER = 'layer { name: "it" type: "Convolution" bottom: "x0" top: "y" convolution_param { FIELDS } }'
RELU = 'layer { name: "relu" type: "ReLU" bottom: "y" top: "y" }'
CASES = {  # channels, height and width beside the fields; all are folded in bfloat16
    "AlexNet's": ("num_output: 8 kernel_size: 11 stride: 4", (3, 39, 43)),
    "GoogLeNet's": ("num_output: 8 kernel_size: 7 stride: 2 pad: 3", (3, 14, 17)),
    "VGG's": ("num_output: 8 kernel_size: 3 pad: 1", (3, 9, 8)),
    "LeNet's": ("num_output: 20 kernel_size: 5", (1, 12, 11)),
    "an even kernel, a pad of three strides": ("num_output: 8 kernel_size: 6 stride: 3 pad: 5", (2, 16, 15)),
    "other rows than columns": (
        "num_output: 8 kernel_h: 5 kernel_w: 2 stride_h: 3 stride_w: 1 pad_h: 1 pad_w: 1", (4, 13, 6),
    ),
    "columns with strides, rows without": ("num_output: 8 kernel_h: 3 kernel_w: 5 stride_h: 1 stride_w: 2", (3, 8, 11)),
    "no bias": ("num_output: 8 kernel_size: 4 stride: 2 bias_term: false", (3, 10, 10)),
    "strides beyond the kernel": ("num_output: 8 kernel_size: 2 stride: 3", (1, 11, 12)),
}  # fmt: skip
NOT_IN_TF32 = [  # which pads 3 channels to 4 alone
    "VGG's", "an even kernel, a pad of three strides", "other rows than columns", "columns with strides, rows without",
]  # fmt: skip
NUMBERS = {"tf32": 2e-5, "bf16": 2e-2}  # with their tolerance; the stand-in for cuDNN does not round to TF32


@pytest.fixture(autouse=True)
def _no_plans_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def net_of(case, numbers="", more="", **how):
    """Return a net of the case on a stand-in for a GPU, the reference's where no numbers are given."""
    fields, shape = CASES[case]
    layers, shape = LAYER.replace("FIELDS", fields) + more, (3, *shape)
    gpu = gpu_with() if numbers else None
    how |= {"numbers": numbers, "plan": "fixed"} if numbers else {}
    return build(layers, shape, engine="auto" if gpu else "reference", gpu=gpu, **how)


@pytest.mark.parametrize("force_backward", [True, False])
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_the_references(case, numbers, force_backward):
    net = net_of(case, numbers, force_backward=force_backward)
    layer = net.layer_dict["it"]
    assert (layer._way is not layer._plain) == (numbers == "bf16" or case not in NOT_IN_TF32)
    found, right = run(net, 2), run(net_of(case, force_backward=force_backward), 2)
    if not force_backward:
        found.pop("x0 diff"), right.pop("x0 diff")
    assert_alike(found, right, NUMBERS[numbers])


@pytest.mark.parametrize("phase", [scaffe.TRAIN, scaffe.TEST])
@pytest.mark.parametrize("numbers", NUMBERS)
def test_with_a_relu_and_in_tests_too(numbers, phase):
    pair = [net_of("GoogLeNet's", numbers, RELU, phase=phase) for numbers in (numbers, "")]
    for net in pair:
        net.forward()
    np.testing.assert_allclose(pair[0].blobs["y"].data, pair[1].blobs["y"].data, atol=4 * NUMBERS[numbers])


def problem(images, weights, out, stride=1, pad=0, compute="bf16", dilation=1):
    maps = (images[0], weights[0], out, out)
    return Problem(images, maps, weights, (stride,) * 2, (pad,) * 2, (dilation,) * 2, compute)


FIRST = {
    "alexnet": (problem((256, 3, 227, 227), (96, 3, 11, 11), 55, 4), (256, 48, 57, 57), (96, 48, 3, 3)),
    "googlenet": (problem((128, 3, 224, 224), (64, 3, 7, 7), 112, 2, 3), (128, 16, 115, 115), (64, 16, 4, 4)),
    "vgg16": (problem((64, 3, 224, 224), (64, 3, 3, 3), 224, 1, 1), (64, 16, 226, 224), (64, 16, 3, 1)),
}


@pytest.mark.parametrize("name", FIRST)
def test_first_layers_of_the_zoo_are_folded_so(name):
    given, images, weights = FIRST[name]
    folded = Folding.of(given).problem
    assert (folded.images, folded.weights, folded.maps) == (images, weights, given.maps)
    param = models.get(name).train_val(batch=1, data="dummy")
    net = scaffe.Net(param, scaffe.TRAIN, engine=engines.create(Compute(numbers="bf16", plan="fixed"), gpu_with()))
    conv = [layer for layer in net.layers if layer.type == "Convolution"]
    assert conv[0]._way.filters.problem.images[1:] == images[1:]
    assert all(layer._way is layer._plain for layer in conv[1:])


@pytest.mark.parametrize(
    "unfolded",
    [
        problem((2, 3, 9, 9), (8, 3, 3, 3), 7, compute="float32"),  # whose kernels pad nothing
        problem((2, 8, 9, 9), (8, 8, 3, 3), 7),  # nothing to pad
        problem((2, 3, 9, 9), (8, 3, 1, 1), 9),  # nothing to fold
        problem((2, 4, 9, 9), (8, 2, 3, 3), 7),  # groups
        problem((2, 3, 9, 9), (8, 3, 3, 3), 5, dilation=2),
    ],
)
def test_others_are_not(unfolded):
    assert Folding.of(unfolded) is None


def test_layers_that_are_no_first_ones_but_have_few_channels_are_folded_with_all_gradients():
    layers = """layer { name: "a" type: "Convolution" bottom: "x0" top: "a"
      convolution_param { num_output: 4 kernel_size: 3 stride: 2 } }
    layer { name: "b" type: "Convolution" bottom: "a" top: "b"
      convolution_param { num_output: 8 kernel_size: 4 stride: 2 pad: 1 } }"""
    pair = [build(layers, (2, 3, 15, 17), engine=engine, gpu=gpu, **how) for engine, gpu, how in (
        ("auto", gpu_with(), {"numbers": "tf32", "plan": "fixed"}), ("reference", None, {}))]  # fmt: skip
    assert_alike(*(run(net, 2) for net in pair))
