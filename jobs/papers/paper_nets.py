"""Nets of the papers that `scaffe models` has not, for their shapes: MobileNet-v2, and ResNets for CIFAR-10."""

from __future__ import annotations

from functools import partial

from scaffe import layers as L
from scaffe import models
from scaffe.models.blocks import MSRA, fc, pool, rectified
from scaffe.models.model import Head, Model
from scaffe.models.normed import conv_bn, normalised
from scaffe.netspec import NetSpec, Top

# Expansion, outputs, units and the first unit's stride of each stage (Sandler et al. 2018, table 2).
INVERTED = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)


def _mobilenet_v2(n: NetSpec, classes: int, training: bool) -> list[Head]:
    x, channels = conv_bn(n, "conv1", n.data, 32, 3, "relu1", stride=2, pad=1), 32
    for stage, (times, outputs, units, stride) in enumerate(INVERTED, 2):
        for i in range(units):
            x = _inverted(n, f"conv{stage}_{i + 1}", x, channels, times, outputs, 1 if i else stride)
            channels = outputs
    x = conv_bn(n, "conv9", x, 1280, 1, "relu9")
    n.pool = L.Pooling(x, pool="AVE", global_pooling=True)
    return [Head(fc(n, "fc", n.pool, classes))]


def _inverted(n: NetSpec, name: str, x: Top, channels: int, times: int, outputs: int, stride: int) -> Top:
    """Add a unit: a 1x1 convolution to `times` the channels, a depthwise one, a linear 1x1 one, and the shortcut."""
    y, wide = x, times * channels
    if times > 1:
        y = conv_bn(n, f"{name}/expand", y, wide, 1, f"{name}/relu_expand")
    y = conv_bn(n, f"{name}/dw", y, wide, 3, f"{name}/relu_dw", stride=stride, pad=1, group=wide)
    y = conv_bn(n, f"{name}/linear", y, outputs, 1, "")
    if stride > 1 or channels != outputs:
        return y
    n[f"{name}/sum"] = L.Eltwise(x, y)
    return n[f"{name}/sum"]


def _cifar_resnet(units: int, bottleneck: bool, n: NetSpec, classes: int, training: bool) -> list[Head]:
    """Add three stages of `units` pre-activated units, of three convolutions with `bottleneck`, else of two."""
    n.conv0 = L.Convolution(n.data, num_output=16, kernel_size=3, pad=1, bias_term=False, weight_filler=MSRA)
    x = n.conv0
    for stage in range(3):
        width = (4 if bottleneck else 1) * 16 * 2**stage
        for i in range(units):
            x = _pre_activated(n, f"{stage + 1}_{i + 1}", x, width, 2 if stage and not i else 1, not i, bottleneck)
    x = pool(n, "pool", _active(n, "last", x), 7, 1, "AVE")
    return [Head(fc(n, "fc", x, classes))]


def _pre_activated(n: NetSpec, name: str, x: Top, width: int, stride: int, first: bool, bottleneck: bool) -> Top:
    """Add a unit, whose first 3x3 convolution has the stride, as has the shortcut's, a convolution in a first unit."""
    narrow = width // 4
    shapes = [(narrow, 1), (narrow, 3), (width, 1)] if bottleneck else [(width, 3), (width, 3)]
    active = y = _active(n, f"{name}a", x)
    left = stride
    for letter, (outputs, kernel) in zip("abc", shapes, strict=False):
        y = y if letter == "a" else _active(n, f"{name}{letter}", y)
        now, left = (left, 1) if kernel == 3 else (1, left)
        y = _conv(n, f"conv{name}{letter}", y, outputs, kernel, now)
    n[f"sum{name}"] = L.Eltwise(_conv(n, f"short{name}", active, width, 1, stride) if first else x, y)
    return n[f"sum{name}"]


def _conv(n: NetSpec, name: str, x: Top, outputs: int, kernel: int, stride: int) -> Top:
    n[name] = L.Convolution(
        x, num_output=outputs, kernel_size=kernel, stride=stride, pad=kernel // 2, bias_term=False, weight_filler=MSRA
    )
    return n[name]


def _active(n: NetSpec, name: str, x: Top) -> Top:
    return rectified(n, normalised(n, f"bn{name}", f"scale{name}", x, in_place=False), f"relu{name}")


def _model(name: str, title: str, paper: str, body: object, parameters: int, side: int, classes: int = 1000) -> Model:
    shapes = dict(shape=(3, side, side), classes=classes, parameters=parameters)
    return Model(name=name, title=title, paper=paper, body=body, solver_fields={}, **shapes)  # type: ignore[arg-type]


# MXNet's rule for images of 28 x 28, to which its example cuts CIFAR-10's: 6 n + 2 layers of two convolutions a unit,
# 16, 32 and 64 channels. It has none with 101 layers: those are 9 n + 2, as for nets with 164 layers or more.
_RULE = "MXNet's symbols/resnet.py, 28 x 28"
MODELS = (
    _model("mobilenet_v2", "MobileNet-v2", "Sandler et al. 2018, 224 x 224", _mobilenet_v2, 3_504_872, 224),
    _model("cifar_resnet50", "ResNet-50, CIFAR-10", _RULE, partial(_cifar_resnet, 8, False), 758_618, 28, 10),
    _model("cifar_resnet101", "ResNet-101, CIFAR-10", _RULE, partial(_cifar_resnet, 11, True), 1_054_106, 28, 10),
)


def get(name: str) -> Model:
    """Return a net of this file, or of `scaffe models`."""
    return next((model for model in MODELS if model.name == name), None) or models.get(name)
