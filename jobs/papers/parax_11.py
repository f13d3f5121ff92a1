"""ParaX, figures 1 and 11: what a barrier after each layer costs.

ResNet-50 is simulated on the paper's machine (scaffe/parallel/instances/simulation): cores of a domain share its
memory's bandwidth; an instance of several cores has a barrier after each layer, instances of one core have none. Here
an instance on each of two cores is measured beside one on both.
"""

from __future__ import annotations

import os
from functools import cache
from statistics import median
from typing import Any

import shapes
from drawing import MODEL, OURS, PAPER, bars, ranges
from figure import ASSUMED, FITTED, MEASURED, STATED, Data, Figure, Input, NotMeasurable, S
from verdicts import Found, Judged, judged

from scaffe.parallel.instances.simulation.layers import LayerCost
from scaffe.parallel.instances.simulation.machine import Machine
from scaffe.parallel.instances.simulation.predict import predict
from scaffe.parallel.instances.simulation.training import Division, Passes
from scaffe.tools.work import LayerWork

BATCH, CORES, ERROR, BATCHES = 32, 28, 0.21, 4  # BATCHES: in a row, in which instances drift apart
SPEEDUPS = {"inference": (2.08, 2.11), "training": (1.73, 2.93)}
HERE, IMAGES, PAIR, TURNS, SECONDS = "mobilenet", 8, 2, 7, 0.5  # net, batch and cores; turns of a way, and their length


@cache
def passes(inference: bool, net: str = "resnet50") -> Passes:
    """Return a net's passes with their operations and bytes; each layer has a kernel of its own."""
    works = [(name, work) for name, work in shapes.works(net, not inference).items() if work.units and work.moved[0]]
    costs = [layer_cost(name, work, way) for way in (0, 1) for name, work in works[:: 1 - 2 * way]]
    return Passes(costs[: len(works)] if inference else costs, 1)


def layer_cost(name: str, work: LayerWork, way: int) -> LayerCost:
    """Return the cost of a layer's forward (0) or backward (1) pass over one image."""
    gradients = work.gradients * way
    parameters = work.parameters + 2 * gradients  # read and written
    seconds = work.flops[way] / 1e11 or work.moved[way] / 2e10  # a Machine's rates replace these
    return LayerCost(name, seconds, work.flops[way], work.moved[way], parameters, gradients, units=work.units)


def gains_of(net: str) -> dict[str, float]:
    """Return how much faster two instances of a core are than one of two, in training and inference; medians."""
    from turns import INFER, TRAIN, Turns, Way

    ways = [
        Way(f"{kind} {instances}", net, IMAGES, kind, instances=instances, threads=PAIR // instances)
        for kind in (TRAIN, INFER)
        for instances in (PAIR, 1)
    ]
    with Turns(ways, {}) as turns:
        counts = turns.counts(SECONDS)
        found = [turns.turn(counts, bool(k % 2)) for k in range(TURNS)]
    each = {"training": TRAIN, "inference": INFER}.items()
    return {phase: median(turn[f"{kind} 1"] / turn[f"{kind} {PAIR}"] for turn in found) for phase, kind in each}


class Barriers(Figure):
    """One instance on all cores against one on each core."""

    id, tag = "parax-11", S
    slow = True
    inputs = (
        Input("bandwidth", 140.8e9, "bytes/s of a domain", ASSUMED, "six channels of DDR4-2933", 100e9, None),
        Input("core bandwidth", 20e9, "bytes/s", FITTED, "on figure 7's knee; a core here moves 34e9", 14e9, 34e9),
        Input("core rate", 130e9, "operations/s", FITTED, "on figure 1: one instance uses 61.3 % of the bandwidth"),
        Input("barrier", 5e-6, "s of an instance's threads", ASSUMED, "after each layer; no number", 2e-6, 2e-5),
        Input("jitter", 0.05, "of a layer's time", ASSUMED, "standard deviation", 0.02, 0.15),
        Input("batch", BATCH, "images of a core", STATED, "section 5: 1,792 on 56 cores"),
        Input("error", ERROR, "of a rate", MEASURED, "docs/simulate-instances.md: the most of two threads"),
    )

    def measure(self) -> Data:
        """Return the gains on two cores."""
        if len(os.sched_getaffinity(0)) < PAIR:
            raise NotMeasurable(f"{PAIR} instances need as many cores")
        return {"gains": gains_of(HERE)}

    def machine(self, domains: int) -> Machine:
        """Return the paper's machine, or one of its sockets."""
        rates = {"core_gflops": self.value("core rate") / 1e9, "core_bandwidth": self.value("core bandwidth")}
        waits = {"barrier": self.value("barrier"), "jitter": self.value("jitter")}
        return Machine(CORES * domains, domains, self.value("bandwidth"), **rates, **waits, unfused=True)

    def gain(self, inference: bool) -> float:
        """Return the rate of an instance on each of 56 cores over that of one on all."""
        whole, images, made = self.machine(2), 2 * CORES * BATCH, passes(inference)
        each = predict(made, whole, Division(1, images, divided=True), BATCHES if inference else 1)
        return each.rate / predict(made, whole, Division(2 * CORES, images, divided=True), 1).rate

    def model(self, measured: Data) -> Data:
        """Return the gains by phase with their ranges."""
        return {phase: vars(self.spread(lambda p=phase: self.gain(p == "inference"))) for phase in SPEEDUPS}

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge the gain in inference, whose range is narrow in the paper."""
        found = {phase: Found(**modelled[phase]) for phase in SPEEDUPS}
        text = ", ".join(f"{phase} {one.words()}" for phase, one in found.items())
        return Judged(judged(found["inference"], SPEEDUPS["inference"][0], ERROR), text)

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw the gains by phase, with the model's range, and those of two cores here."""
        found = [modelled[phase] for phase in SPEEDUPS]
        rows = [
            (f"paper, {what}", [each[k] for each in SPEEDUPS.values()], shade) for k, (what, shade) in enumerate(ENDS)
        ]
        rows.append(("modelled, ResNet-50", [one["value"] for one in found], MODEL))
        here = [measured["gains"][phase] for phase in SPEEDUPS] if measured else []
        bars(axes, list(SPEEDUPS), [*rows, ("measured, 2 cores here, MobileNet-v1", here, OURS)])
        ranges(axes, 0.1, found)
        axes.axhline(1, color="grey", linewidth=0.8)
        axes.set(ylabel="an instance on each core over one on all", ylim=(0, 4.6))


ENDS = ("least", PAPER), ("most", "grey")
FIGURE = Barriers()
