"""Layers of forks on a GPU: their reference forms over arrays as strict as CuPy's have the numbers that NumPy gives."""

import numpy as np
import pytest
from both_engines import assert_alike, build, run
from strict_arrays import a_gpu

import scaffe

X = (2, 4, 6, 8)


def layer(kind, fields="", bottoms="x0", tops="y"):
    blobs = "".join(f' bottom: "{name}"' for name in bottoms.split()) + "".join(f' top: "{n}"' for n in tops.split())
    return f'layer {{ name: "it" type: "{kind}"{blobs} {fields} }}'


POOL = 'layer { name: "p" type: "Pooling" bottom: "x0" top: "p" top: "m" pooling_param { kernel_size: 2 stride: 2 } }'
LEARNING = [
    (layer("ReLU6"), X),
    (layer("ReLU6", "relu6_param { negative_slope: 0.125 }"), X),
    (layer("HardSwish"), X),
    (layer("Mish", tops="x0"), X),
    (layer("CReLU"), X),
    (layer("ShuffleChannel", "shuffle_channel_param { group: 2 }"), X),
    (layer("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }"), X),
    (layer("Normalize", "norm_param { across_spatial: false channel_shared: false }"), X),
    (layer("Normalize"), X),
    (layer("L2Normalization"), X),
    (layer("BN", "bn_param { scale_filler { value: 1 } }"), X),
    (layer("BN", "bn_param { slope_filler { value: 1 } }", tops="x0"), X),
    (layer("Interp", "interp_param { height: 5 width: 11 }"), X),
    (layer("Reorg", "reorg_param { stride: 2 }"), X),
    (layer("Upsample", "upsample_param { scale: 2 }"), X),
    (POOL + layer("Upsample", "upsample_param { scale: 2 }", "p m"), X),
    (layer("DepthwiseConvolution", "convolution_param { num_output: 4 kernel_size: 3 pad: 1 }"), X),
    (layer("Axpy", bottoms="x0 x1 x2"), (2, 4, 1, 1), X, X),
    (layer("SmoothL1Loss", bottoms="x0 x1"), X, X),
    (layer("ROIPooling", "roi_pooling_param { pooled_w: 2 pooled_h: 2 }", "x0 x1"), X, (3, 5)),
    (layer("PSROIPooling", "psroi_pooling_param { spatial_scale: 1 output_dim: 1 group_size: 2 }", "x0 x1"), X, (3, 5)),
]
HEADS = [
    (layer("PriorBox", "prior_box_param { min_size: 3 aspect_ratio: 2 }", "x0 x1"), X, (2, 3, 12, 16)),
    (layer("Region", "region_param { num: 2 classes: 2 }"), (2, 14, 3, 4)),
    (layer("YoloDetectionOutput", "yolo_detection_output_param { num_box: 2 num_classes: 2 biases: 1 biases: 2 "
           "biases: 2 biases: 1 }"), (2, 14, 3, 4)),
    (layer("DetectionOutput", "detection_output_param { num_classes: 3 }", "x0 x1 x2"), (2, 24), (2, 18), (1, 2, 24)),
    (layer("DetectionEvaluate", "detection_evaluate_param { num_classes: 3 }", "x0 x1"), (1, 1, 4, 7), (1, 1, 3, 8)),
]  # fmt: skip


def both(text, *shapes, **how):
    """Return the net over strict arrays and over NumPy's, with the same numbers; regions are of images."""
    nets = [build(text, *shapes, engine="reference", gpu=gpu, **how) for gpu in (a_gpu(), None)]
    if shapes[-1] == (3, 5):
        for net in nets:
            net.blobs["x1"].data[...] = [[0, 0, 0, 7, 5], [1, 1, 1, 4, 3], [1, 5, 2, 9, 9]]
    if "DetectionEvaluate" in text:
        for net in nets:
            net.blobs["x0"].data[..., :2] = net.blobs["x1"].data[..., :2] = 0, 1
    return nets


@pytest.mark.parametrize("case", LEARNING, ids=lambda case: case[0].split('type: "')[-1][:40])
def test_forward_and_backward_are_those_of_numpy(case):
    text, *shapes = case
    constant = "Loss" in text or shapes[-1] == (3, 5)
    strict, plain = both(text, *shapes, force_backward=not constant)
    if constant:
        for net in (strict, plain):
            net.forward()
        np.testing.assert_allclose(strict.blobs["y"].data, plain.blobs["y"].data, rtol=1e-6)
    else:
        assert_alike(run(strict), run(plain), 1e-6)


@pytest.mark.parametrize("case", HEADS, ids=lambda case: case[0].split('type: "')[-1][:40])
def test_heads_are_those_of_numpy(case):
    text, *shapes = case
    strict, plain = both(text, *shapes, force_backward=False, phase=scaffe.TEST)
    np.testing.assert_allclose(strict.forward()["y"], plain.forward()["y"], rtol=1e-6)


def test_the_loss_of_boxes_is_numpys():
    text = layer("MultiBoxLoss", "multibox_loss_param { num_classes: 3 code_type: CORNER }", "x0 x1 x2 x3")
    nets = both(text, (2, 24), (2, 18), (1, 2, 24), (1, 1, 2, 8), force_backward=True)
    for net in nets:
        rng = np.random.default_rng(0)
        corners = rng.uniform(0, 0.5, (6, 2))
        net.blobs["x2"].data[0] = np.hstack([corners, corners + 0.4]).reshape(-1), np.full(24, 0.1)
        net.blobs["x3"].data[...] = [[0, 1, 0, 0.1, 0.1, 0.5, 0.5, 0], [1, 2, 0, 0.3, 0.2, 0.7, 0.8, 0]]
        net.forward()
        net.backward()
    found = [{"y": net.blobs["y"].data.copy()} for net in nets]
    for values, net in zip(found, nets, strict=True):
        values.update((name, net.blobs[name].diff.copy()) for name in ("x0", "x1"))
    assert_alike(*found)
