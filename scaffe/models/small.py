"""LeNet on MNIST, and the nets on CIFAR-10 that Caffe's examples train."""

from __future__ import annotations

from functools import partial

from scaffe import layers as L
from scaffe.models.blocks import RATES, conv, fc, gaussian, named, pool, rectified
from scaffe.models.model import Head, Model
from scaffe.models.normed import normalised
from scaffe.spec.netspec import NetSpec, Top


def _lenet(n: NetSpec, classes: int, training: bool) -> list[Head]:
    x = pool(n, "pool1", conv(n, "conv1", n.data, 20, 5, param=RATES), 2, 2)
    x = pool(n, "pool2", conv(n, "conv2", x, 50, 5, param=RATES), 2, 2)
    x = fc(n, "ip1", x, 500, "relu1", param=RATES)
    return [Head(fc(n, "ip2", x, classes, param=RATES))]


def _cifar10_quick(n: NetSpec, classes: int, training: bool) -> list[Head]:
    x = conv(n, "conv1", n.data, 32, 5, weights=gaussian(0.0001), pad=2, param=RATES)
    x = rectified(n, pool(n, "pool1", x, 3, 2), "relu1")
    for i, outputs in ((2, 32), (3, 64)):
        x = conv(n, f"conv{i}", x, outputs, 5, f"relu{i}", gaussian(0.01), pad=2, param=RATES)
        x = pool(n, f"pool{i}", x, 3, 2, "AVE")
    x = fc(n, "ip1", x, 64, weights=gaussian(0.1), param=RATES)
    return [Head(fc(n, "ip2", x, classes, weights=gaussian(0.1), param=RATES))]


def _cifar10_full(n: NetSpec, classes: int, training: bool) -> list[Head]:
    x = conv(n, "conv1", n.data, 32, 5, weights=gaussian(0.0001), pad=2, param=RATES)
    x = _norm(n, "norm1", rectified(n, pool(n, "pool1", x, 3, 2), "relu1"))
    x = conv(n, "conv2", x, 32, 5, "relu2", gaussian(0.01), pad=2, param=RATES)
    x = _norm(n, "norm2", pool(n, "pool2", x, 3, 2, "AVE"))
    x = conv(n, "conv3", x, 64, 5, "relu3", gaussian(0.01), pad=2, param=[])
    x = pool(n, "pool3", x, 3, 2, "AVE")
    decays = [dict(lr_mult=1, decay_mult=250), dict(lr_mult=1, decay_mult=0)]
    return [Head(fc(n, "ip1", x, classes, weights=gaussian(0.01), param=decays))]


def _cifar10_sigmoid(n: NetSpec, classes: int, training: bool, normed: bool) -> list[Head]:
    x = pool(n, "pool1", conv(n, "conv1", n.data, 32, 5, weights=gaussian(0.0001), pad=2, param=RATES), 3, 2)
    x = _sigmoid(n, 1, x, normed)
    for i, outputs, rates in ((2, 32, RATES), (3, 64, [])):
        x = conv(n, f"conv{i}", x, outputs, 5, weights=gaussian(0.01), pad=2, param=rates)
        x = pool(n, f"pool{i}", _sigmoid(n, i, x, normed), 3, 2, "AVE")
    fields = [dict(lr_mult=1, decay_mult=250), dict(lr_mult=0.2, decay_mult=0)]
    return [Head(fc(n, "ip1", x, classes, weights=gaussian(0.01), param=fields))]


def _sigmoid(n: NetSpec, i: int, bottom: Top, normed: bool) -> Top:
    """Add a Sigmoid, after a BatchNorm and a Scale if `normed`."""
    x = normalised(n, f"bn{i}", f"scale{i}", bottom, in_place=False) if normed else bottom
    return named(n, f"Sigmoid{i}", L.Sigmoid(x))


def _norm(n: NetSpec, name: str, bottom: Top) -> Top:
    return named(n, name, L.LRN(bottom, local_size=3, alpha=5e-5, beta=0.75, norm_region="WITHIN_CHANNEL"))


LENET = Model(
    name="lenet",
    title="LeNet",
    paper="LeCun et al. 1998, as in Caffe's MNIST example",
    body=_lenet,
    shape=(1, 28, 28),
    parameters=431_080,
    classes=10,
    batch=64,
    test_batch=100,
    source="examples/mnist/mnist_{}_lmdb",
    sources=("train", "test"),
    transform=dict(scale=1 / 256),
    solver_fields=dict(
        test_iter=[100], test_interval=500, base_lr=0.01, momentum=0.9, weight_decay=0.0005, lr_policy="inv",
        gamma=0.0001, power=0.75, display=100, max_iter=10_000, snapshot=5_000,
    ),
)  # fmt: skip

_CIFAR10 = dict(
    shape=(3, 32, 32),
    classes=10,
    batch=100,
    test_batch=100,
    source="examples/cifar10/cifar10_{}_lmdb",
    sources=("train", "test"),
    transform=dict(mean_file="examples/cifar10/mean.binaryproto"),
)
_CIFAR10_SOLVER = dict(
    test_iter=[100], base_lr=0.001, momentum=0.9, weight_decay=0.004, lr_policy="multistep", gamma=0.1
)

# Caffe's example trains with a solver file for each learning rate; here one lowers it at the same iterations.
CIFAR10_QUICK = Model(
    name="cifar10_quick",
    title="CIFAR10_quick",
    paper="Krizhevsky's cuda-convnet, as in Caffe's CIFAR-10 example",
    body=_cifar10_quick,
    parameters=145_578,
    solver_fields=dict(
        **_CIFAR10_SOLVER, test_interval=500, stepvalue=[4_000], display=100, max_iter=5_000, snapshot=4_000
    ),
    **_CIFAR10,  # type: ignore[arg-type]
)
CIFAR10_FULL = Model(
    name="cifar10_full",
    title="CIFAR10_full",
    paper="Krizhevsky's cuda-convnet, as in Caffe's CIFAR-10 example",
    body=_cifar10_full,
    parameters=89_578,
    solver_fields=dict(
        **_CIFAR10_SOLVER, test_interval=1_000, stepvalue=[60_000, 65_000], display=200, max_iter=70_000,
        snapshot=10_000,
    ),
    **_CIFAR10,  # type: ignore[arg-type]
)  # fmt: skip

# Its two forms with Sigmoids have no LRN. A pull request's layer BN stands in Caffe's file of the second.
_SIGMOID_SOLVER = dict(
    test_iter=[100], test_interval=1_000, base_lr=0.001, momentum=0.9, lr_policy="fixed", display=100,
    max_iter=60_000, snapshot=10_000,
)  # fmt: skip
CIFAR10_FULL_SIGMOID = Model(
    name="cifar10_full_sigmoid",
    title="CIFAR10_full_sigmoid",
    paper="CIFAR10_full with Sigmoids, as in Caffe's CIFAR-10 example",
    body=partial(_cifar10_sigmoid, normed=False),
    parameters=89_578,
    solver_fields=_SIGMOID_SOLVER,
    **_CIFAR10,  # type: ignore[arg-type]
)
CIFAR10_FULL_SIGMOID_BN = Model(
    name="cifar10_full_sigmoid_bn",
    title="CIFAR10_full_sigmoid_bn",
    paper="CIFAR10_full with batch normalisation before Sigmoids, as in Caffe's CIFAR-10 example",
    body=partial(_cifar10_sigmoid, normed=True),
    parameters=89_834,
    solver_fields=_SIGMOID_SOLVER,
    **_CIFAR10,  # type: ignore[arg-type]
)
