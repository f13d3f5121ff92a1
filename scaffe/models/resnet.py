"""Residual nets with 50 and 101 layers."""

from __future__ import annotations

from functools import partial

from scaffe import layers as L
from scaffe.models.blocks import MSRA, fc, pool, rectified
from scaffe.models.imagenet import MEAN
from scaffe.models.model import Head, Model
from scaffe.models.normed import normalised
from scaffe.spec.netspec import NetSpec, Top


def _resnet(depths: tuple[int, ...], n: NetSpec, classes: int, training: bool) -> list[Head]:
    """Add stages of `depths` bottleneck blocks (table 1)."""
    deep = sum(depths) > 16
    # As in the published files, the first convolution has biases only in the net with 50 layers.
    bias = dict(bias_term=False) if deep else {}
    n.conv1 = L.Convolution(n.data, num_output=64, kernel_size=7, pad=3, stride=2, weight_filler=MSRA, **bias)
    x = rectified(n, normalised(n, "bn_conv1", "scale_conv1", n.conv1), "conv1_relu")
    x = pool(n, "pool1", x, 3, 2)
    for stage, depth in enumerate(depths, 2):
        for i in range(depth):
            stride = 2 if stage > 2 and i == 0 else 1
            x = _block(n, f"{stage}{_letter(i, depth, deep)}", x, 2**stage * 16, stride, first=i == 0)
    x = pool(n, "pool5", x, 7, 1, "AVE")
    return [Head(fc(n, "fc1000", x, classes, weights=MSRA, param=[]), top5="accuracy_top5")]


def _letter(i: int, depth: int, deep: bool) -> str:
    """Return the name of a stage's block i: a, b, c and so on, or a, b1, b2 in long stages of deeper nets."""
    return "abcdef"[i] if not deep or depth == 3 else f"b{i}" if i else "a"


def _block(n: NetSpec, block: str, x: Top, width: int, stride: int, first: bool) -> Top:
    """Add 1x1, 3x3 and 1x1 convolutions and the shortcut, a convolution in a stage's first block (figure 5)."""
    around = _conv(n, block, "branch1", x, 4 * width, 1, stride=stride) if first else x
    y = _conv(n, block, "branch2a", x, width, 1, relu=True, stride=stride)
    y = _conv(n, block, "branch2b", y, width, 3, relu=True, pad=1)
    y = _conv(n, block, "branch2c", y, 4 * width, 1)
    n[f"res{block}"] = L.Eltwise(around, y)
    return rectified(n, n[f"res{block}"], f"res{block}_relu")


def _conv(
    n: NetSpec, block: str, branch: str, bottom: Top, outputs: int, kernel: int, relu: bool = False, **fields: int
) -> Top:
    name = f"res{block}_{branch}"
    n[name] = L.Convolution(
        bottom, num_output=outputs, kernel_size=kernel, bias_term=False, weight_filler=MSRA, **fields
    )
    x = normalised(n, f"bn{block}_{branch}", f"scale{block}_{branch}", n[name])
    return rectified(n, x, f"{name}_relu" if relu else "")


# The rate falls at the iterations that figure 4 shows.
_HE = dict(
    shape=(3, 224, 224),
    transform=dict(crop_size=224, mean_value=MEAN),
    train_transform=dict(mirror=True),
    solver_fields=dict(
        test_iter=[1000], test_interval=5000, base_lr=0.1, momentum=0.9, weight_decay=0.0001, lr_policy="multistep",
        gamma=0.1, stepvalue=[150_000, 300_000], max_iter=600_000, display=20, snapshot=10_000,
    ),
)  # fmt: skip
RESNET50 = Model(
    name="resnet50",
    title="ResNet-50",
    paper="He et al. 2016",
    body=partial(_resnet, (3, 4, 6, 3)),
    parameters=25_557_096,
    **_HE,  # type: ignore[arg-type]
)
RESNET101 = Model(
    name="resnet101",
    title="ResNet-101",
    paper="He et al. 2016",
    body=partial(_resnet, (3, 4, 23, 3)),
    parameters=44_549_160,
    **_HE,  # type: ignore[arg-type]
)
