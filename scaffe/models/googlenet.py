"""GoogLeNet with its two auxiliary losses, and Inception-BN, its successor with batch normalisation."""

from __future__ import annotations

from typing import Any

from scaffe import layers as L
from scaffe.errors import ScaffeError
from scaffe.models.blocks import conv, dropout, fc, named, pool
from scaffe.models.imagenet import MEAN, norm
from scaffe.models.model import Head, Model
from scaffe.models.normed import conv_bn
from scaffe.spec.netspec import NetSpec, Top

# Outputs of a module's branches: 1x1, 3x3's reduction, 3x3, 5x5's reduction, 5x5, the pooled branch (table 1).
_MODULES = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
_POOLS_BEHIND = {"3b": "pool3/3x3_s2", "4e": "pool4/3x3_s2"}
_HEADS_BEHIND = {"4a": "loss1", "4d": "loss2"}


def _googlenet(n: NetSpec, classes: int, training: bool) -> list[Head]:
    x = _relu_conv(n, "conv1", "7x7_s2", n.data, 64, 7, stride=2, pad=3)
    x = norm(n, "pool1/norm1", pool(n, "pool1/3x3_s2", x, 3, 2))
    x = _relu_conv(n, "conv2", "3x3_reduce", x, 64, 1)
    x = norm(n, "conv2/norm2", _relu_conv(n, "conv2", "3x3", x, 192, 3, pad=1))
    x = pool(n, "pool2/3x3_s2", x, 3, 2)
    heads = []
    for module, outputs in _MODULES.items():
        x = _inception(n, f"inception_{module}", x, *outputs)
        if training and module in _HEADS_BEHIND:
            heads.append(_auxiliary(n, _HEADS_BEHIND[module], x, classes))
        if module in _POOLS_BEHIND:
            x = pool(n, _POOLS_BEHIND[module], x, 3, 2)
    x = dropout(n, "pool5/drop_7x7_s1", pool(n, "pool5/7x7_s1", x, 7, 1, "AVE"), 0.4)
    score = fc(n, "loss3/classifier", x, classes)
    return [*heads, Head(score, "loss3/loss3", "loss3/top-1", "loss3/top-5")]


def _relu_conv(n: NetSpec, module: str, name: str, bottom: Top, outputs: int, kernel: int, **fields: Any) -> Top:
    relu = f"{module}/relu_{name.removesuffix('_s2')}"
    return conv(n, f"{module}/{name}", bottom, outputs, kernel, relu, bias=0.2, **fields)


def _inception(
    n: NetSpec, module: str, x: Top, one: int, reduce3: int, three: int, reduce5: int, five: int, pooled: int
) -> Top:
    """Add an Inception module (figure 2b): four branches, concatenated on the channel axis."""
    branches = [_relu_conv(n, module, "1x1", x, one, 1)]
    y = _relu_conv(n, module, "3x3_reduce", x, reduce3, 1)
    branches.append(_relu_conv(n, module, "3x3", y, three, 3, pad=1))
    y = _relu_conv(n, module, "5x5_reduce", x, reduce5, 1)
    branches.append(_relu_conv(n, module, "5x5", y, five, 5, pad=2))
    y = pool(n, f"{module}/pool", x, 3, 1, pad=1)
    branches.append(_relu_conv(n, module, "pool_proj", y, pooled, 1))
    return named(n, f"{module}/output", L.Concat(*branches))


def _auxiliary(n: NetSpec, head: str, x: Top, classes: int) -> Head:
    """Add an auxiliary classifier, with weight 0.3 in the loss (section 5)."""
    x = pool(n, f"{head}/ave_pool", x, 5, 3, "AVE")
    x = conv(n, f"{head}/conv", x, 128, 1, f"{head}/relu_conv", bias=0.2)
    x = dropout(n, f"{head}/drop_fc", fc(n, f"{head}/fc", x, 1024, f"{head}/relu_fc", bias=0.2), 0.7)
    score = fc(n, f"{head}/classifier", x, classes)
    return Head(score, f"{head}/loss1", f"{head}/top-1", f"{head}/top-5", weight=0.3)


# Outputs of a module's branches: 1x1, 3x3's reduction, 3x3, double 3x3's reduction, double 3x3 twice, the pooled
# branch. Modules without the first and the last halve height and width; their pooled branch has no convolution.
_BN_MODULES = {
    "3a": (64, 64, 64, 64, 96, 32),
    "3b": (64, 64, 96, 64, 96, 64),
    "3c": (0, 128, 160, 64, 96, 0),
    "4a": (224, 64, 96, 96, 128, 128),
    "4b": (192, 96, 128, 96, 128, 128),
    "4c": (160, 128, 160, 128, 160, 128),
    "4d": (96, 128, 192, 160, 192, 128),
    "4e": (0, 128, 192, 192, 256, 0),
    "5a": (352, 192, 320, 160, 224, 128),
    "5b": (352, 192, 320, 192, 224, 128),
}


def _inception_bn(n: NetSpec, classes: int, training: bool, side: int) -> list[Head]:
    if side % 32:
        raise ScaffeError(f"inception_bn halves height and width five times; give a side of 32, 64, ..., got {side}")
    x = conv_bn(n, "conv1/7x7_s2", n.data, 64, 7, relu="conv1/relu_7x7", stride=2, pad=3)
    x = pool(n, "pool1/3x3_s2", x, 3, 2)
    x = conv_bn(n, "conv2/3x3_reduce", x, 64, 1, relu="conv2/relu_3x3_reduce")
    x = conv_bn(n, "conv2/3x3", x, 192, 3, relu="conv2/relu_3x3", pad=1)
    x = pool(n, "pool2/3x3_s2", x, 3, 2)
    for module, outputs in _BN_MODULES.items():
        x = _bn_module(n, f"inception_{module}", x, *outputs, pooling="MAX" if module == "5b" else "AVE")
    x = pool(n, "pool5/7x7_s1", x, side // 32, 1, "AVE")
    return [Head(fc(n, "loss3/classifier", x, classes), "loss3/loss3", "loss3/top-1", "loss3/top-5")]


def _bn_module(
    n: NetSpec, module: str, x: Top, one: int, reduce3: int, three: int, reduced: int, double: int, pooled: int,
    pooling: str,
) -> Top:  # fmt: skip
    """Add a module of Inception-BN (figure 5), whose 5 x 5 branch is replaced by two 3 x 3 convolutions."""

    def add(name: str, bottom: Top, outputs: int, kernel: int, stride: int = 1) -> Top:
        fields = dict(pad=1, stride=stride) if kernel == 3 else {}
        return conv_bn(n, f"{module}/{name}", bottom, outputs, kernel, relu=f"{module}/relu_{name}", **fields)

    stride = 1 if one else 2
    branches = [add("1x1", x, one, 1)] if one else []
    branches.append(add("3x3", add("3x3_reduce", x, reduce3, 1), three, 3, stride))
    y = add("double_3x3_1", add("double_3x3_reduce", x, reduced, 1), double, 3)
    branches.append(add("double_3x3_2", y, double, 3, stride))
    if one:
        branches.append(add("pool_proj", pool(n, f"{module}/pool", x, 3, 1, pooling, pad=1), pooled, 1))
    else:
        branches.append(pool(n, f"{module}/pool", x, 3, 2))
    return named(n, f"{module}/output", L.Concat(*branches))


_IMAGES = dict(
    shape=(3, 224, 224),
    batch=32,
    transform=dict(crop_size=224, mean_value=MEAN),
    train_transform=dict(mirror=True),
)
_SOLVER = dict(test_iter=[1000], test_interval=4000, display=40, average_loss=40, momentum=0.9, snapshot=40_000)

GOOGLENET = Model(
    name="googlenet",
    title="GoogleNet",
    paper="Szegedy et al. 2015, as bvlc_googlenet",
    body=_googlenet,
    parameters=6_998_552,
    solver_fields=dict(
        **_SOLVER, base_lr=0.01, lr_policy="step", stepsize=320_000, gamma=0.96, max_iter=10_000_000,
        weight_decay=0.0002, test_initialization=False,
    ),
    **_IMAGES,  # type: ignore[arg-type]
)  # fmt: skip

# The paper's BN-x5 (section 4.2): five times Inception's rate of 0.0015, decaying six times as fast as GoogLeNet's 4 %
# per 8 epochs; a fifth of its weight decay; no LRN and no dropout.
INCEPTION_BN = Model(
    name="inception_bn",
    title="InceptionBN",
    paper="Ioffe and Szegedy 2015, BN-x5",
    body=_inception_bn,
    sizes=dict(side=224),
    parameters=11_285_224,
    solver_fields=dict(
        **_SOLVER, base_lr=0.0075, lr_policy="step", stepsize=53_382, gamma=0.96, max_iter=1_200_000,
        weight_decay=0.00004,
    ),
    **_IMAGES,  # type: ignore[arg-type]
)  # fmt: skip
