"""Nets for ImageNet without branches: AlexNet, CaffeNet, NIN, VGG."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from scaffe import layers as L
from scaffe.models.blocks import conv, dropout, fc, gaussian, named, pool
from scaffe.models.model import Head, Model
from scaffe.spec.netspec import NetSpec, Top

MEAN = [104.0, 117.0, 123.0]  # of ImageNet's blue, green and red
MEAN_FILE = "data/ilsvrc12/imagenet_mean.binaryproto"


def norm(n: NetSpec, name: str, bottom: Top) -> Top:
    """Add the LRN across channels that AlexNet, CaffeNet and GoogLeNet share."""
    return named(n, name, L.LRN(bottom, local_size=5, alpha=0.0001, beta=0.75))


def _norm_and_pool(n: NetSpec, i: int, x: Top) -> Top:
    return pool(n, f"pool{i}", norm(n, f"norm{i}", x), 3, 2)


def _pool_and_norm(n: NetSpec, i: int, x: Top) -> Top:
    return norm(n, f"norm{i}", pool(n, f"pool{i}", x, 3, 2))


def _alexnet(
    shrink: Callable[[NetSpec, int, Top], Top], bias: float, n: NetSpec, classes: int, training: bool
) -> list[Head]:
    """Add AlexNet's layers; `shrink` pools and normalises, `bias` is the initial value of half of the biases."""
    weights = gaussian(0.01)
    x = shrink(n, 1, conv(n, "conv1", n.data, 96, 11, "relu1", weights, stride=4))
    x = shrink(n, 2, conv(n, "conv2", x, 256, 5, "relu2", weights, bias, pad=2, group=2))
    x = conv(n, "conv3", x, 384, 3, "relu3", weights, pad=1)
    x = conv(n, "conv4", x, 384, 3, "relu4", weights, bias, pad=1, group=2)
    x = conv(n, "conv5", x, 256, 3, "relu5", weights, bias, pad=1, group=2)
    x = pool(n, "pool5", x, 3, 2)
    for i in (6, 7):
        x = dropout(n, f"drop{i}", fc(n, f"fc{i}", x, 4096, f"relu{i}", gaussian(0.005), bias))
    return [Head(fc(n, "fc8", x, classes, weights=weights))]


_alexnet_body = partial(_alexnet, _norm_and_pool, 0.1)
_caffenet_body = partial(_alexnet, _pool_and_norm, 1.0)


def _nin(n: NetSpec, classes: int, training: bool) -> list[Head]:
    """Add convolutions, each followed by two of 1 x 1 (the paper's cccp); the last is averaged per class."""
    small = gaussian(0.05)
    x = conv(n, "conv1", n.data, 96, 11, "relu0", gaussian(0.01), stride=4)
    x = conv(n, "cccp1", x, 96, 1, "relu1", small)
    x = pool(n, "pool0", conv(n, "cccp2", x, 96, 1, "relu2", small), 3, 2)
    x = conv(n, "conv2", x, 256, 5, "relu3", small, pad=2)
    x = conv(n, "cccp3", x, 256, 1, "relu5", small)
    x = pool(n, "pool2", conv(n, "cccp4", x, 256, 1, "relu6", small), 3, 2)
    x = conv(n, "conv3", x, 384, 3, "relu7", gaussian(0.01), pad=1)
    x = conv(n, "cccp5", x, 384, 1, "relu8", small)
    x = pool(n, "pool3", conv(n, "cccp6", x, 384, 1, "relu9", small), 3, 2)
    x = conv(n, "conv4-1024", dropout(n, "drop", x), 1024, 3, "relu10", small, pad=1)
    x = conv(n, "cccp7-1024", x, 1024, 1, "relu11", small)
    x = conv(n, "cccp8-1024", x, classes, 1, "relu12", gaussian(0.01))
    return [Head(pool(n, "pool4", x, 6, 1, "AVE"), top5="accuracy_top5")]


def _vgg(depths: tuple[int, ...], n: NetSpec, classes: int, training: bool) -> list[Head]:
    """Add stages of `depths` 3 x 3 convolutions, with Glorot's initial weights (footnote in section 3.1)."""
    x = n.data
    for stage, (depth, outputs) in enumerate(zip(depths, (64, 128, 256, 512, 512), strict=True), 1):
        for i in range(1, depth + 1):
            x = conv(n, f"conv{stage}_{i}", x, outputs, 3, f"relu{stage}_{i}", pad=1)
        x = pool(n, f"pool{stage}", x, 2, 2)
    for i in (6, 7):
        x = dropout(n, f"drop{i}", fc(n, f"fc{i}", x, 4096, f"relu{i}"))
    return [Head(fc(n, "fc8", x, classes), top5="accuracy_top5")]


_SOLVER = dict(
    test_iter=[1000], test_interval=1000, base_lr=0.01, momentum=0.9, weight_decay=0.0005, lr_policy="step", gamma=0.1,
    display=20, snapshot=10_000,
)  # fmt: skip

_KRIZHEVSKY = dict(
    shape=(3, 227, 227),
    parameters=60_965_224,
    transform=dict(crop_size=227, mean_file=MEAN_FILE),
    train_transform=dict(mirror=True),
    solver_fields=dict(**_SOLVER, stepsize=100_000, max_iter=450_000),
)
ALEXNET = Model(
    name="alexnet",
    title="AlexNet",
    paper="Krizhevsky et al. 2012, as bvlc_alexnet",
    body=_alexnet_body,
    **_KRIZHEVSKY,  # type: ignore[arg-type]
)
CAFFENET = Model(
    name="caffenet",
    title="CaffeNet",
    paper="AlexNet that pools before it normalises, as bvlc_reference_caffenet",
    body=_caffenet_body,
    **_KRIZHEVSKY,  # type: ignore[arg-type]
)

NIN = Model(
    name="nin",
    title="NIN_Imagenet",
    paper="Lin et al. 2014, Network In Network",
    body=_nin,
    shape=(3, 224, 224),
    parameters=7_595_176,
    batch=64,
    transform=dict(crop_size=224, mean_file=MEAN_FILE),
    train_transform=dict(mirror=True),
    solver_fields=dict(**_SOLVER, stepsize=200_000, max_iter=450_000),
)

# The paper divides the rate by 10 when validation stalls, three times in 370,000 iterations; here at even intervals.
_SIMONYAN = dict(
    shape=(3, 224, 224),
    transform=dict(crop_size=224, mean_value=[103.939, 116.779, 123.68]),
    train_transform=dict(mirror=True),
    solver_fields=dict(**_SOLVER, stepsize=100_000, max_iter=370_000),
)
VGG16 = Model(
    name="vgg16",
    title="VGG_ILSVRC_16_layers",
    paper="Simonyan and Zisserman 2015, configuration D",
    body=partial(_vgg, (2, 2, 3, 3, 3)),
    parameters=138_357_544,
    **_SIMONYAN,  # type: ignore[arg-type]
)
VGG19 = Model(
    name="vgg19",
    title="VGG_ILSVRC_19_layers",
    paper="Simonyan and Zisserman 2015, configuration E",
    body=partial(_vgg, (2, 2, 4, 4, 4)),
    parameters=143_667_240,
    **_SIMONYAN,  # type: ignore[arg-type]
)
