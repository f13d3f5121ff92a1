"""The check of published nets: a net of every layer of forks agrees with plain numpy, and wrong numbers are noticed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from both_engines import needs_onednn
from google.protobuf import text_format

from scaffe.proto import NetParameter

JOBS = Path(__file__).resolve().parents[2] / "jobs"


@pytest.fixture
def published(monkeypatch):
    monkeypatch.syspath_prepend(str(JOBS))
    import published

    yield published
    for name in ("published", "plain_forward", "rpn.proposal_layer", "rpn"):
        sys.modules.pop(name, None)


def layer(kind: str, bottoms: str, tops: str, fields: str = "") -> str:
    blobs = "".join(f' bottom: "{name}"' for name in bottoms.split()) + "".join(f' top: "{n}"' for n in tops.split())
    return f'layer {{ name: "{tops.split()[0]}_layer" type: "{kind}"{blobs} {fields} }}\n'


CONV = "convolution_param { num_output: 8 kernel_size: 3 pad: 1 }"
NET = (
    layer("Input", "", "data", "input_param { shape { dim: 1 dim: 3 dim: 24 dim: 32 } }")
    + layer("Convolution", "data", "c", CONV)
    + layer("BN", "c", "bn", "bn_param { slope_filler { value: 1 } }")
    + layer("BN", "bn", "bn2", "bn_param { scale_filler { value: 1 } }")
    + layer("ReLU6", "bn2", "bn2")
    + layer("DepthwiseConvolution", "bn2", "dw", "convolution_param { num_output: 8 kernel_size: 3 stride: 2 pad: 1 }")
    + layer("Pooling", "bn2", "pool places", "pooling_param { kernel_size: 2 stride: 2 }")
    + layer("Upsample", "pool places", "up", "upsample_param { upsample_h: 24 upsample_w: 32 }")
    + layer("Upsample", "pool", "rep", "upsample_param { scale: 2 }")
    + layer("Eltwise", "up rep", "sum")
    + layer("Interp", "sum", "interp", "interp_param { height: 9 width: 13 }")
    + layer("ShuffleChannel", "dw", "shuffled", "shuffle_channel_param { group: 4 }")
    + layer("Pooling", "shuffled", "means", "pooling_param { pool: AVE global_pooling: true }")
    + layer("Sigmoid", "means", "means")
    + layer("Axpy", "means shuffled dw", "axpy")
    + layer("HardSwish", "axpy", "hs")
    + layer("Mish", "hs", "mish")
    + layer("CReLU", "mish", "crelu")
    + layer("Reorg", "crelu", "reorg", "reorg_param { stride: 2 }")
    + layer("Normalize", "crelu", "norm", "norm_param { across_spatial: false channel_shared: false }")
    + layer("Convolution", "norm", "loc", "convolution_param { num_output: 16 kernel_size: 1 }")
    + layer("Permute", "loc", "locp", "permute_param { order: 0 order: 2 order: 3 order: 1 }")
    + layer("Flatten", "locp", "locf")
    + layer("Convolution", "norm", "conf", "convolution_param { num_output: 12 kernel_size: 1 }")
    + layer("Permute", "conf", "confp", "permute_param { order: 0 order: 2 order: 3 order: 1 }")
    + layer("Reshape", "confp", "confr", "reshape_param { shape { dim: 0 dim: -1 dim: 3 } }")
    + layer("Softmax", "confr", "confs", "softmax_param { axis: 2 }")
    + layer("Flatten", "confs", "conff")
    + layer("PriorBox", "norm data", "priors",
            "prior_box_param { min_size: 8 max_size: 13 aspect_ratio: 2 clip: true }")
    + layer("DetectionOutput", "locf conff priors", "found",
            "detection_output_param { num_classes: 3 code_type: CENTER_SIZE "
            "keep_top_k: 30 confidence_threshold: 0.2 nms_param { nms_threshold: 0.45 top_k: 40 } }")
    + layer("Convolution", "reorg", "yolo", "convolution_param { num_output: 16 kernel_size: 1 }")
    + layer("YoloDetectionOutput", "yolo", "yolos", "yolo_detection_output_param { num_classes: 3 num_box: 2 biases: 1 "
            "biases: 2 biases: 3 biases: 1 confidence_threshold: 0.3 }")
)  # fmt: skip
RPN = (
    layer("Input", "", "data im_info",
          "input_param { shape { dim: 1 dim: 3 dim: 64 dim: 96 } shape { dim: 1 dim: 3 } }")
    + layer("Convolution", "data", "c", "convolution_param { num_output: 18 kernel_size: 16 stride: 16 }")
    + layer("Reshape", "c", "two", "reshape_param { shape { dim: 0 dim: 2 dim: -1 dim: 0 } }")
    + layer("Softmax", "two", "chances")
    + layer("Reshape", "chances", "scores", "reshape_param { shape { dim: 0 dim: 18 dim: -1 dim: 0 } }")
    + layer("Convolution", "data", "shifts", "convolution_param { num_output: 36 kernel_size: 16 stride: 16 }")
    + layer("Python", "scores shifts im_info", "rois", "python_param { module: 'rpn.proposal_layer' "
            "layer: 'ProposalLayer' param_str: \"'feat_stride': 16\" }")
    + layer("ROIPooling", "c rois", "pool", "roi_pooling_param { pooled_w: 3 pooled_h: 3 spatial_scale: 0.0625 }")
)  # fmt: skip


@pytest.mark.parametrize("engine", ["reference", pytest.param("onednn", marks=needs_onednn)])
@pytest.mark.parametrize("net", [NET, RPN], ids=["forks", "proposals"])
def test_a_net_of_forks_layers_gives_what_plain_numpy_gives(published, net, engine):
    found = published.check(text_format.Parse(net, NetParameter()), engine)
    assert found.difference < 1e-4, found.blob
    assert sum(found.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize("kind", ["BN", "Interp", "Reorg", "DetectionOutput", "Upsample", "ShuffleChannel", "PriorBox"])
def test_another_result_is_noticed(published, monkeypatch, kind):
    right = published.plain_forward.FORMS[kind]

    def wrong(*given):
        return right(*given)[..., ::-1] * 1.01

    monkeypatch.setitem(published.plain_forward.FORMS, kind, wrong)
    assert published.check(text_format.Parse(NET, NetParameter()), "reference").difference > published.MOST


def test_the_command_says_what_it_found(published, tmp_path, monkeypatch, capsys):
    (tmp_path / "good.prototxt").write_text(NET)
    (tmp_path / "odd.prototxt").write_text(NET + layer("SegAccuracy", "c", "odd"))
    files = [str(tmp_path / name) for name in ("good.prototxt", "odd.prototxt")]
    monkeypatch.setattr(sys, "argv", ["published.py", *files])
    assert published.main() == 1
    said = capsys.readouterr().out
    assert "good: " in said and "odd: refused: " in said and "SegAccuracy" in said
    monkeypatch.setattr(sys, "argv", ["published.py", "--without", "SegAccuracy", files[1]])
    assert published.main() == 0


def test_regions_are_the_best_that_overlap_little(published):
    """Against a loop over all anchors: those of the paper, moved, clipped, sorted and suppressed one by one."""
    compute = published.Compute("reference", device="cpu", allow_python_layers=True)
    found = published.scaffe.Net(text_format.Parse(RPN, NetParameter()), published.scaffe.TEST, compute=compute)
    published.fill(found)
    found.forward()
    scores, shifts = found.blobs["scores"].data[0, 9:], found.blobs["shifts"].data[0].reshape(9, 4, 4, 6)
    from rpn.proposal_layer import anchors

    np.testing.assert_allclose(
        anchors()[[0, 4, 8]], [[-84, -40, 99, 55], [-120, -120, 135, 135], [-168, -344, 183, 359]]
    )
    boxes = []
    for k, i, j in np.ndindex(9, 4, 6):
        x1, y1, x2, y2 = anchors()[k] + [16 * j, 16 * i] * 2
        w, h = x2 - x1 + 1, y2 - y1 + 1
        cx, cy = x1 + w / 2 + shifts[k, 0, i, j] * w, y1 + h / 2 + shifts[k, 1, i, j] * h
        w, h = w * np.exp(shifts[k, 2, i, j]), h * np.exp(shifts[k, 3, i, j])
        box = np.clip([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], 0, [95, 63, 95, 63])
        if min(box[2] - box[0], box[3] - box[1]) + 1 >= 16:
            boxes.append((scores[k, i, j], box))
    kept: list[np.ndarray] = []
    for _, box in sorted(boxes, key=lambda one: -one[0]):
        if all(common(box, other) <= 0.7 for other in kept):
            kept.append(box)
    np.testing.assert_allclose(found.blobs["rois"].data[:, 1:], kept[:300], rtol=0, atol=1e-3)


def common(a, b) -> float:
    w, h = (max(0, min(a[i + 2], b[i + 2]) - max(a[i], b[i]) + 1) for i in (0, 1))
    areas = sum((c[2] - c[0] + 1) * (c[3] - c[1] + 1) for c in (a, b))
    return w * h / (areas - w * h)
