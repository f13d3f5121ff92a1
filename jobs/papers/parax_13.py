"""ParaX, figures 13, 14, 20 and 21: throughput against cores and against instances.

The simulation of parax-11 on both sockets: cores of a socket share its bandwidth, an instance of several cores has a
barrier after each layer. Core rate and bandwidth are those that parax-11 fits or assumes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import shapes
from drawing import curves
from figure import ASSUMED, FITTED, MODEL, OTHER, OURS, STATED, Check, Data, Figure, Input, holds
from parax_11 import FIGURE as BARRIERS
from parax_11 import layer_cost, machine

from scaffe.parallel.instances.simulation.predict import predict
from scaffe.parallel.instances.simulation.training import Division, Passes

NETS = {"ResNet-50": "resnet50", "ResNet-101": "resnet101", "MobileNet-v1": "mobilenet", "Inception-BN": "inception_bn"}
SCALED = "ResNet-50", "MobileNet-v1"  # figures 13 and 14
CORES, SIZES = (1, 14, 28, 56), (56, 28, 7, 1)  # of the machine; of an instance, for 1 to 56 instances
COLOURS = dict(zip(NETS, (OURS, MODEL, OTHER, "grey"), strict=True))
PHASES = {"training": False, "inference": True}


def passes(net: str, inference: bool) -> Passes:
    """Return a net's passes for one image."""
    works = [(name, work) for name, work in shapes.works(NETS[net], not inference).items() if work.units]
    forward = [layer_cost(name, work, 0) for name, work in works]
    return Passes(forward if inference else forward + [layer_cost(name, work, 1) for name, work in works[::-1]], 1)


@cache
def rate(net: str, inference: bool, cores: int, x: int) -> float:
    """Return the images per second of some cores in instances of x."""
    value = Instances().value
    resnet = ", ResNets" if net.startswith("ResNet") else ""
    whole = machine(2)
    part = replace(whole, cores=cores, domains=whole.covered(cores))
    if inference:
        images = round(value(f"batch, inference{resnet}") * cores / whole.cores)
        return predict(passes(net, True), part, Division(x, images, divided=True), 2).rate
    halved = resnet and cores // x == whole.cores
    images = round(value("batch, ResNets, 56 instances" if halved else "batch"))
    return predict(passes(net, False), part, Division(x, images), 1).rate


class Instances(Figure):
    """One instance on each core against fewer instances, and against fewer cores."""

    id, rank = "parax-13", 17
    title = "Throughput against cores, and against the number of instances"
    source = "ParaX, figures 13, 14, 20 and 21, sections 5.1 and 5.4.1"
    paper = "fastest with 56 instances, each net on ImageNet; ParaX scales better than MXNet"
    inputs = (
        Input("core rate", BARRIERS.value("core rate"), "operations/s", FITTED, "by parax-11, on figure 1"),
        Input("core bandwidth", BARRIERS.value("core bandwidth"), "bytes/s", FITTED, "by parax-11, on figure 7's knee"),
        Input("bandwidth", BARRIERS.value("bandwidth"), "bytes/s of a domain", ASSUMED, "six channels of DDR4-2933"),
        Input("jitter", BARRIERS.value("jitter"), "of a layer's time", ASSUMED, "standard deviation"),
        Input("batch", 64, "images of an instance", STATED, "section 5, training"),
        Input("batch, ResNets, 56 instances", 32, "images of an instance", STATED, "section 5"),
        Input("batch, inference", 3584, "images", STATED, "section 5"),
        Input("batch, inference, ResNets", 1792, "images", STATED, "section 5"),
    )
    unexplained = (
        "The curves have no number in the text but figure 11's: 1.73 to 2.93 in training, 2.08 to 2.11 in inference, "
        "above what sharing bandwidth gives here. See parax-11.",
        "On CIFAR-10 inference is fastest with 28 instances (figures 22, 23). Its ResNets are not given.",
        "An LSTM is one layer to the simulation, so figure 24 (Word-LM) is left out. MobileNet-v2 is not at hand.",
    )

    def model(self, measured: Data) -> Data:
        """Return the images per second by phase and net: over instances on 56 cores, and over cores."""
        found: Data = {"instances": {}, "cores": {}}
        for phase, inference in PHASES.items():
            found["instances"][phase] = {net: [rate(net, inference, 56, x) for x in SIZES] for net in NETS}
            each = {net: [rate(net, inference, n, 1) for n in CORES] for net in SCALED}
            one = {net: [rate(net, inference, n, n) for n in CORES] for net in SCALED}
            found["cores"][phase] = {"ParaX": each, "MXNet": one}
        return found

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check which number of instances is best, and that the speedup on 28 and 56 cores is the greater."""
        for phase, nets in modelled["instances"].items():
            for net, rates in nets.items():
                yield holds(f"{net}, {phase}: fastest with 56 instances", max(rates) == rates[-1])
            for net in SCALED:
                each, one = (modelled["cores"][phase][system][net] for system in ("ParaX", "MXNet"))
                over = min((each[i] / each[0]) / (one[i] / one[0]) for i in (-2, -1))
                yield Check(f"{net}, {phase}: ParaX's speedup over MXNet's, 28 and 56 cores, least", over, low=1.0)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the gains of 56 instances."""
        gains = {phase: [r[-1] / r[0] for r in nets.values()] for phase, nets in modelled["instances"].items()}
        text = ", ".join(f"{phase} {min(each):.2f} to {max(each):.2f}x" for phase, each in gains.items())
        return "", f"56 instances over 1: {text}"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw images per second against cores, and against instances."""
        panels = figure.subplots(1, 3)
        for system, line in (("ParaX", "-"), ("MXNet", "--")):
            rates = modelled["cores"]["training"][system]
            curves(panels[0], CORES, rates, map(COLOURS.get, rates), f"o{line}", f"{{}}, {system}")
        panels[0].set(xlabel="cores", title="training (modelled)", ylabel="images/s")
        for axes, phase in zip(panels[1:], PHASES, strict=True):
            curves(axes, [56 // x for x in SIZES], modelled["instances"][phase], COLOURS.values())
            axes.set(xlabel="instances on 56 cores", title=f"{phase} (modelled)")
        for axes in panels:
            axes.set_ylim(0, None)
            axes.legend(frameon=False, fontsize=7)


FIGURE = Instances()
