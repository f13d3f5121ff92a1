"""Variants: SingleCaffe's nets and solvers, and their seconds by images, on a core here and on one of the paper's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import iteration
import numpy as np
from conditions import seconds_of
from figure import ASSUMED, DERIVED, FITTED, Data, Input

from scaffe.simulation import find_cluster

SIZES, TURNS, THREADS = (1, 2, 3, 4, 5, 6, 8, 12, 20, 32, 50, 64, 72, 100, 144, 200), 7, tuple(range(1, 25))
BATCHES = {"CIFAR-10": (100, 150, 200), "MNIST": (64, 96, 128)}
BYTES = {"CIFAR-10": 358_312, "MNIST": 1_724_320}  # of gradients

Seconds = Callable[[float], float]  # of an iteration by its images


@dataclass(frozen=True)
class Variant:
    """A model's name and a solver's type."""

    net: str
    solver: str = "SGD"


VARIANTS = {
    "CIFAR-10": {
        "ReLU": Variant("cifar10_full"),
        "Sigmoid": Variant("cifar10_full_sigmoid"),
        "BN": Variant("cifar10_full_sigmoid_bn"),
    },
    "MNIST": {kind: Variant("lenet", kind) for kind in ("SGD", "Adam", "RMSProp")},
}
BASE = {data: next(iter(each)) for data, each in VARIANTS.items()}

TIANHE = find_cluster("tianhe")
NODE = (
    Input("CIFAR-10, one thread", 0.75, "s", ASSUMED, "3 x 24.6 MFLOP, 100 images, 9.8 GFLOP/s of a core"),
    Input("MNIST, one thread", 0.19, "s", ASSUMED, "3 x 4.59 MFLOP, 64 images, 4.6 GFLOP/s in smaller products"),
    Input("bandwidth", TIANHE["memory"], "bytes/s", ASSUMED, TIANHE.quantities["memory"].where),
    Input("barrier", 20e-6, "s", ASSUMED, "three meetings of 24 threads in an iteration"),
    *(Input(f"{net}, gradients", n, "bytes", DERIVED, "Caffe's cifar10_full and LeNet") for net, n in BYTES.items()),
)
GAIN = Input("one node, CIFAR-10", 16, "over one thread", FITTED, "on section V.B: the best gain of what is measured")


def passes(name: str) -> list[float]:
    """Return the seconds of a forward and a backward pass on one core, by SIZES of batches that take turns.

    They are the least, since other work distorts them; the first pass of a turn is not timed.
    """
    nets = [iteration.build(iteration.zoo(name, batch), "auto", "auto") for batch in SIZES]
    turns = [[seconds_of(lambda net=net: (net.forward(), net.backward()), 2)[1] for net in nets] for _ in range(TURNS)]
    for net in nets:
        net.close()
    return [min(each) for each in zip(*turns, strict=True)]


def update(variant: Variant) -> float:
    """Return the seconds of an update of all parameters on one core, the least."""
    net = iteration.build(iteration.zoo(variant.net, 1), "auto", "auto")
    found = min(seconds_of(iteration.update(net, variant.solver), 3 * TURNS))
    net.close()
    return found


def measured_here(base: bool = False) -> Data:
    """Return the seconds of passes by model and images, and of updates by data and variant; `base`: the first ones."""
    chosen = {
        data: {name: one for name, one in each.items() if name == BASE[data] or not base}
        for data, each in VARIANTS.items()
    }
    nets = dict.fromkeys(one.net for each in chosen.values() for one in each.values())
    return {
        "passes": {net: passes(net) for net in nets},
        "updates": {data: {name: update(one) for name, one in each.items()} for data, each in chosen.items()},
    }


def here(measured: Data, data: str, name: str) -> Seconds:
    """Return the seconds of one core here."""
    each, more = measured["passes"][VARIANTS[data][name].net], measured["updates"][data][name]
    return lambda images: float(np.interp(images, SIZES, each)) + more


def of_paper(measured: Data, data: str, name: str, one: float) -> Seconds:
    """Return the seconds of one of the paper's threads: `one` of the whole batch by the first variant, else as here."""
    factor = one / here(measured, data, BASE[data])(BATCHES[data][0])
    seconds = here(measured, data, name)
    return lambda images: factor * seconds(images)


def iteration_of(seconds: Seconds, batch: int, threads: int, nbytes: float, bandwidth: float, barrier: float) -> float:
    """Return the seconds of an iteration of threads: the largest part of the batch, then sums of slices, if any."""
    computing = seconds(-(-batch // threads))
    return computing if threads == 1 else computing + 3 * threads * nbytes / bandwidth + 3 * barrier


def gains(measured: Data, data: str, value: Callable[[str], float]) -> dict[str, float]:
    """Return by how much one node at its best is faster than one thread, by measured variant; `value`: of an input."""
    found, batch = {}, BATCHES[data][0]
    for name in measured["updates"][data]:
        seconds = of_paper(measured, data, name, value(f"{data}, one thread"))
        rates = BYTES[data], value("bandwidth"), value("barrier")
        found[name] = seconds(batch) / min(iteration_of(seconds, batch, n, *rates) for n in THREADS)
    return found


def factor(measured: Data, value: Callable[[str], float]) -> float:
    """Return the factor of one node's modelled time on CIFAR-10 that makes the best of its gains GAIN."""
    return max(gains(measured, "CIFAR-10", value).values()) / value(GAIN.name)


def best(measured: Data, data: str, value: Callable[[str], float]) -> dict[str, float]:
    """Return the seconds of an iteration on one node at its best, by measured variant; `value`: of an input.

    CIFAR-10's have the factor; MNIST's gain is not stated, and nothing is fitted on it.
    """
    one, batch = value(f"{data}, one thread"), BATCHES[data][0]
    times = factor(measured, value) if data == "CIFAR-10" else 1.0
    found = gains(measured, data, value).items()
    return {name: times * of_paper(measured, data, name, one)(batch) / gain for name, gain in found}
