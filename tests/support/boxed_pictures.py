"""Made pictures with boxes: squares and bars on grey, a list of them with VOC annotations, and a small SSD."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 32
CLASSES = ("square", "bar")  # labels 1 and 2
LABEL_MAP = "".join(f'item {{ name: "{name}" label: {i} }}\n' for i, name in enumerate(("none", *CLASSES)))


def annotation(boxes: list[tuple[str, int, int, int, int]], width: int = SIDE, height: int = SIDE) -> str:
    """Return VOC's XML of boxes: class, xmin, ymin, xmax, ymax."""
    objects = "".join(
        f"<object><name>{name}</name><difficult>0</difficult><bndbox><xmin>{a}</xmin><ymin>{b}</ymin>"
        f"<xmax>{c}</xmax><ymax>{d}</ymax></bndbox></object>"
        for name, a, b, c, d in boxes
    )
    return f"<annotation><size><width>{width}</width><height>{height}</height></size>{objects}</annotation>"


def make(folder: Path, count: int, seed: int = 0, name: str = "list.txt") -> Path:
    """Make pictures with one or two boxes each, their annotations, the list and labels.prototxt; return the list."""
    rng, lines = np.random.default_rng(seed), []
    for i in range(count):
        pixels = rng.integers(90, 120, (SIDE, SIDE, 3)).astype(np.uint8)
        boxes = []
        for half in rng.permutation(2)[: rng.integers(1, 3)]:
            kind = int(rng.integers(2))
            width, height = (10, 10) if kind == 0 else (12, 5)
            x, y = int(half) * 16 + rng.integers(0, 16 - width + 1), rng.integers(0, SIDE - height + 1)
            pixels[y : y + height, x : x + width] = (250, 30, 30) if kind == 0 else (30, 30, 250)
            boxes.append((CLASSES[kind], int(x), int(y), int(x) + width, int(y) + height))
        stem = f"{name.split('.')[0]}{i:03}"
        Image.fromarray(pixels).save(folder / f"{stem}.png")
        (folder / f"{stem}.xml").write_text(annotation(boxes))
        lines.append(f"{stem}.png {stem}.xml\n")
    (folder / "labels.prototxt").write_text(LABEL_MAP)
    (folder / name).write_text("".join(lines))
    return folder / name


def data_layer(source: Path | str, batch: int, phase: str, more: str = "", sampler: str = "") -> str:
    """Return an AnnotatedData layer."""
    labels = Path(source).parent / "labels.prototxt"
    return f"""layer {{ name: "data" type: "AnnotatedData" top: "data" top: "label" include {{ phase: {phase} }}
  data_param {{ source: "{source}" batch_size: {batch} }}
  transform_param {{ scale: 0.0078125 mean_value: 104 mean_value: 104 mean_value: 104 {more}
    resize_param {{ prob: 1 resize_mode: WARP height: {SIDE} width: {SIDE} }} }}
  annotated_data_param {{ label_map_file: "{labels}" {sampler} }} }}
"""


def conv(name: str, bottom: str, outputs: int, stride: int = 1, relu: bool = True) -> str:
    fields = f'num_output: {outputs} kernel_size: 3 pad: 1 stride: {stride} weight_filler {{ type: "xavier" }}'
    text = f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" '
    text += f"convolution_param {{ {fields} }} }}\n"
    return text + (f'layer {{ name: "{name}_relu" type: "ReLU" bottom: "{name}" top: "{name}" }}\n' if relu else "")


def head(bottom: str, sizes: str) -> str:
    """Return the predictions of a feature map, with four priors of a pixel."""
    text = ""
    for what, count in (("loc", 4), ("conf", len(CLASSES) + 1)):
        name = f"{bottom}_{what}"
        text += conv(name, bottom, 4 * count, relu=False)
        text += (
            f'layer {{ name: "{name}_perm" type: "Permute" bottom: "{name}" top: "{name}_perm" '
            "permute_param { order: 0 order: 2 order: 3 order: 1 } }\n"
            f'layer {{ name: "{name}_flat" type: "Flatten" bottom: "{name}_perm" top: "{name}_flat" }}\n'
        )
    return text + (
        f'layer {{ name: "{bottom}_priors" type: "PriorBox" bottom: "{bottom}" bottom: "data" top: "{bottom}_priors" '
        f"prior_box_param {{ {sizes} aspect_ratio: 2 variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 }} }}\n"
    )


def ssd(train: Path | str, test: Path | str, batch: int = 8, sampler: str = "", mirror: bool = True) -> str:
    """Return a small SSD over these lists, with its test."""
    classes = len(CLASSES) + 1
    text = 'name: "SmallSSD"\n' + data_layer(train, batch, "TRAIN", "mirror: true" if mirror else "", sampler)
    text += data_layer(test, 8, "TEST")
    text += conv("c1", "data", 16, 2) + conv("c2", "c1", 24, 2) + conv("c3", "c2", 32, 2)
    text += (
        'layer { name: "c2_norm" type: "Normalize" bottom: "c2" top: "c2_norm" norm_param { across_spatial: false '
        "scale_filler { value: 8 } channel_shared: false } }\n"
    )
    text += head("c2_norm", "min_size: 8 max_size: 12") + head("c3", "min_size: 12 max_size: 20")
    for what, axis in (("loc_flat", 1), ("conf_flat", 1), ("priors", 2)):
        text += (
            f'layer {{ name: "{what}" type: "Concat" bottom: "c2_norm_{what}" bottom: "c3_{what}" top: "{what}" '
            f"concat_param {{ axis: {axis} }} }}\n"
        )
    common = f"num_classes: {classes} code_type: CENTER_SIZE"
    return (
        text
        + f"""layer {{ name: "loss" type: "MultiBoxLoss" bottom: "loc_flat" bottom: "conf_flat" bottom: "priors"
  bottom: "label" top: "loss" include {{ phase: TRAIN }} propagate_down: true propagate_down: true
  propagate_down: false propagate_down: false multibox_loss_param {{ {common} overlap_threshold: 0.5 }} }}
layer {{ name: "rows" type: "Reshape" bottom: "conf_flat" top: "rows" include {{ phase: TEST }}
  reshape_param {{ shape {{ dim: 0 dim: -1 dim: {classes} }} }} }}
layer {{ name: "softmax" type: "Softmax" bottom: "rows" top: "softmax" include {{ phase: TEST }}
  softmax_param {{ axis: 2 }} }}
layer {{ name: "flat" type: "Flatten" bottom: "softmax" top: "flat" include {{ phase: TEST }} }}
layer {{ name: "found" type: "DetectionOutput" bottom: "loc_flat" bottom: "flat" bottom: "priors" top: "found"
  include {{ phase: TEST }} detection_output_param {{ {common} confidence_threshold: 0.05 keep_top_k: 20
  nms_param {{ nms_threshold: 0.45 top_k: 50 }} }} }}
layer {{ name: "eval" type: "DetectionEvaluate" bottom: "found" bottom: "label" top: "eval" include {{ phase: TEST }}
  detection_evaluate_param {{ num_classes: {classes} }} }}
"""
    )


def solver(net: Path | str, iterations: int, tests: int = 2) -> str:
    """Return a solver of the net, which tests at the end."""
    return (
        f'net: "{net}" base_lr: 0.02 momentum: 0.9 lr_policy: "fixed" max_iter: {iterations} random_seed: 7 '
        f'display: 10 test_iter: {tests} test_interval: {iterations} test_initialization: false eval_type: "detection" '
        'ap_version: "11point" snapshot_prefix: "ssd" snapshot_after_train: true\n'
    )
