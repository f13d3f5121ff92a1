"""Variants: SingleCaffe's nets and solvers, and their seconds by images, on a core here and on one of the paper's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import median
from typing import Any

import iteration
import numpy as np
from figure import ASSUMED, Data, Input

from scaffe.simulation import find_cluster

SIZES, THREADS = (1, 2, 3, 4, 5, 6, 8, 12, 20, 32, 50, 64, 72, 100, 144, 200), tuple(range(1, 25))
WARM_UP, ROUNDS = 5, 9  # calls before the rounds; rounds
FEW, MANY, LEAST = 3, 20, 0.02  # calls in a round, of which the first is not timed; seconds that they should take
BATCHES = {"CIFAR-10": 100, "MNIST": 64}
BYTES = {"CIFAR-10": 358_312, "MNIST": 1_724_320}  # of gradients

Seconds = Callable[[float], float]  # of an iteration by its images
Value = Callable[[str], float]  # of an input by its name
Key = tuple[str, object]


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
THREAD = {  # of a Tianhe-2 core
    "CIFAR-10": Input("one thread", 0.75, "s", ASSUMED, "3 x 24.6 MFLOP, 100 images, 9.8 GFLOP/s of a core"),
    "MNIST": Input("one thread", 0.19, "s", ASSUMED, "3 x 4.59 MFLOP, 64 images, 4.6 GFLOP/s in smaller products"),
}
MEMORY = TIANHE["memory"]
NODE = (
    Input("bandwidth", MEMORY, "bytes/s", ASSUMED, TIANHE.quantities["memory"].where, None, 102e9),
    Input("barrier", 20e-6, "s", ASSUMED, "three meetings of 24 threads in an iteration", 10e-6, 40e-6),
)
LINKS = (
    Input("alpha", TIANHE["alpha"], "s of a message", ASSUMED, "TH Express-2's data sheet", TIANHE["alpha"] / 2, 1e-5),
    Input("beta", 1 / TIANHE["rate"], "s/byte", ASSUMED, "TH Express-2's data sheet: 6.36 GB/s"),
)


@cache
def measured_here() -> Data:
    """Return the seconds of passes by model and images, and of updates by data and variant, on a core here.

    All take turns, so that what slows a round slows all sizes: sizes one after the other once differed by a third in
    two runs. The figures of one run of papers.sh share it.
    """
    nets = dict.fromkeys(one.net for each in VARIANTS.values() for one in each.values())
    with ExitStack() as stack:
        found = in_turns(dict(calls(list(nets), stack)))
    return {
        "passes": {net: [found[net, n] for n in SIZES] for net in nets},
        "updates": {data: {name: found[data, name] for name in each} for data, each in VARIANTS.items()},
    }


def calls(nets: list[str], stack: ExitStack) -> Iterator[tuple[Key, Callable[[], None]]]:
    """Yield passes by model and images, and updates by data and variant; the stack closes the nets."""
    for name in nets:
        for n in SIZES:
            net = built(name, n, stack)
            yield (name, n), lambda net=net: both(net)
    for data, each in VARIANTS.items():
        for name, one in each.items():
            yield (data, name), iteration.update(built(one.net, 1, stack), one.solver)


def built(name: str, images: int, stack: ExitStack) -> Any:
    """Return a net over random images."""
    net = iteration.build(iteration.zoo(name, images), "auto", "auto")
    stack.callback(net.close)
    return net


def both(net: Any) -> None:
    """Compute a forward and a backward pass."""
    net.forward()
    net.backward()


def in_turns(all_calls: Mapping[Key, Callable[[], None]]) -> dict[Key, float]:
    """Return the seconds of each call: the medians of rounds, which go there and back."""
    often = {}
    for key, call in all_calls.items():
        often[key] = max(FEW, min(MANY, round(LEAST / core_seconds(call, WARM_UP)[-1])))
    found: dict[Key, list[float]] = {key: [] for key in all_calls}
    for k in range(ROUNDS):
        for key in list(all_calls)[:: 1 - 2 * (k % 2)]:
            found[key].append(median(core_seconds(all_calls[key], often[key])[1:]))
    return {key: median(each) for key, each in found.items()}


def core_seconds(call: Callable[[], None], times: int) -> list[float]:
    """Return the seconds of a core that this thread takes for each of some calls; those of other work don't count."""
    ends = [time.thread_time()]
    for _ in range(times):
        call()
        ends.append(time.thread_time())
    return [end - start for start, end in pairwise(ends)]


def here(measured: Data, data: str, name: str) -> Seconds:
    """Return the seconds of one core here."""
    each, more = measured["passes"][VARIANTS[data][name].net], measured["updates"][data][name]
    return lambda images: float(np.interp(images, SIZES, each)) + more


def of_paper(measured: Data, data: str, name: str, one: float) -> Seconds:
    """Return the seconds of one of the paper's threads: `one` of the whole batch by the first variant, else as here."""
    factor = one / here(measured, data, BASE[data])(BATCHES[data])
    seconds = here(measured, data, name)
    return lambda images: factor * seconds(images)


def iteration_of(seconds: Seconds, batch: int, threads: int, nbytes: float, bandwidth: float, barrier: float) -> float:
    """Return the seconds of an iteration of threads: the largest part of the batch, then sums of slices, if any."""
    computing = seconds(-(-batch // threads))
    return computing if threads == 1 else computing + 3 * threads * nbytes / bandwidth + 3 * barrier


def at_best(seconds: Seconds, data: str, value: Value) -> float:
    """Return the seconds of an iteration on one node at its best, by a thread's seconds."""
    rates = value("bandwidth"), value("barrier")
    return min(iteration_of(seconds, BATCHES[data], n, BYTES[data], *rates) for n in THREADS)


def exchange(way: str, nodes: int, nbytes: float, value: Value) -> float:
    """Return the seconds in which all nodes get the sum of their gradients.

    - allreduce: halving and doubling; nodes beyond a power of two give theirs to others first, and get the sum last.
    - server: node 0 receives from all others, one after the other, and sends to them.
    - tree: a binomial tree up and down.
    """
    if nodes == 1:
        return 0.0
    alpha, beta = value("alpha"), value("beta")
    doublings, rounds = nodes.bit_length() - 1, (nodes - 1).bit_length()
    if way == "allreduce":
        folded = nodes > 1 << doublings
        return 2 * rounds * alpha + (2 * (1 - 0.5**doublings) + 2 * folded) * nbytes * beta
    each = nodes - 1 if way == "server" else rounds
    return 2 * each * (alpha + nbytes * beta)


def ratios(measured: Data, name: str, way: str, value: Value) -> list[float]:
    """Return MNIST's seconds over 1 to 24 nodes, one thread each, over those of one node at its best."""
    data = "MNIST"
    seconds = of_paper(measured, data, name, value("one thread"))
    best = at_best(seconds, data, value)
    times = [seconds(-(-BATCHES[data] // n)) + exchange(way, n, BYTES[data], value) for n in THREADS]
    return [one / best for one in times]
