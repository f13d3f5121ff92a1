"""ParaX, figures 11, 13, 14 and 20 to 24: throughput against cores and against instances.

The simulation of parax-11 on both sockets: cores of a socket share its bandwidth, an instance of several cores has a
barrier after each layer. Core rate and bandwidth are those that parax-11 fits or assumes. The steps of Word-LM's LSTM
layers are layers of their own (paper_word_lm.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import paper_word_lm
import shapes
from drawing import curves
from figure import ASSUMED, FITTED, MODEL, OTHER, OURS, STATED, Check, Data, Figure, Input, within
from parax_11 import FIGURE as BARRIERS
from parax_11 import layer_cost, machine

from scaffe.parallel.instances.simulation.predict import predict
from scaffe.parallel.instances.simulation.training import Division, Passes

IMAGENET = {
    "ResNet-50": "resnet50",
    "ResNet-101": "resnet101",
    "MobileNet-v1": "mobilenet",
    "MobileNet-v2": "mobilenet_v2",
    "Inception-BN": "inception_bn",
}
CIFAR = {"ResNet-50, CIFAR-10": "cifar_resnet50", "ResNet-101, CIFAR-10": "cifar_resnet101"}
WORDS = "Word-LM"
NETS = [*IMAGENET, *CIFAR, WORDS]
SCALED = "ResNet-50", "MobileNet-v1"  # figures 13 and 14
CORES, SIZES = (1, 14, 28, 56), (56, 28, 2, 1)  # of the machine; of an instance, for 1 to 56 instances
COUNTS = [56 // x for x in SIZES]
COLOURS = dict(zip(NETS, (OURS, "navy", MODEL, "firebrick", "grey", OTHER, "darkgreen", "purple"), strict=True))
PHASES = {"training": False, "inference": True}
MXNETS = 128, 256  # samples of MXNet's one instance, beside ParaX's 64 of each


@cache
def passes(net: str, inference: bool) -> Passes:
    """Return a net's passes for one image, or for a batch of sequences."""
    if net == WORDS:
        return paper_word_lm.passes(inference)
    works = shapes.works((IMAGENET | CIFAR)[net], not inference).items()
    used = [(name, work) for name, work in works if work.units and work.moved[0]]  # no views
    forward = [layer_cost(name, work, 0) for name, work in used]
    return Passes(forward if inference else forward + [layer_cost(name, work, 1) for name, work in used[::-1]], 1)


@cache
def rate(net: str, inference: bool, cores: int, x: int, batch: int = 0) -> float:
    """Return the images per second of some cores in instances of x.

    `batch`: images of an instance in training, of all in inference; those of section 5 by default.
    """
    value = Instances().value
    resnet = ", ResNets" if net.startswith("ResNet") and net in IMAGENET else ""
    whole = machine(2)
    part = replace(whole, cores=cores, domains=whole.covered(cores))
    if inference:
        images = batch or round(value(f"batch, inference{resnet}") * cores / whole.cores)
        return predict(passes(net, True), part, Division(x, images, divided=True), 2).rate
    halved = resnet and cores // x == whole.cores
    images = batch or round(value("batch, ResNets, 56 instances" if halved else "batch"))
    return predict(passes(net, False), part, Division(x, images), 1).rate


class Instances(Figure):
    """One instance on each core against fewer instances, and against fewer cores."""

    id, rank = "parax-13", 17
    slow = True
    title = "Throughput against cores, and against the number of instances"
    source = "ParaX, figures 11, 13, 14 and 20 to 24, sections 5.1 and 5.4"
    paper = "fastest with 56 instances, but inference on CIFAR-10 with 28; scales better than MXNet; LSTM 2.76, 2.49x"
    inputs = (
        Input("core rate", BARRIERS.value("core rate"), "operations/s", FITTED, "by parax-11, on figure 1"),
        Input("core bandwidth", BARRIERS.value("core bandwidth"), "bytes/s", FITTED, "by parax-11, on figure 7's knee"),
        Input("bandwidth", BARRIERS.value("bandwidth"), "bytes/s of a domain", ASSUMED, "six channels of DDR4-2933"),
        Input("barrier", BARRIERS.value("barrier"), "s of an instance's threads", ASSUMED, "by parax-11"),
        Input("jitter", BARRIERS.value("jitter"), "of a layer's time", ASSUMED, "standard deviation"),
        Input("batch", 64, "images of an instance", STATED, "section 5, training"),
        Input("batch, ResNets, 56 instances", 32, "images of an instance", STATED, "section 5"),
        Input("batch, inference", 3584, "images", STATED, "section 5"),
        Input("batch, inference, ResNets", 1792, "images", STATED, "section 5, on ImageNet"),
        Input("CIFAR-10's ResNets", 3, "stages", ASSUMED, "MXNet's rule for 28 x 28: 16 to 64 channels, or 64 to 256"),
        Input("Word-LM", 650, "neurons", STATED, "section 5.1: two layers of an LSTM"),
        *(
            Input(f"Word-LM over MXNet's, B = {batch}", gain, "", STATED, "section 5.1, with figure 11, training")
            for batch, gain in zip(MXNETS, (2.76, 2.49), strict=True)
        ),
        Input("Word-LM: steps", paper_word_lm.STEPS, "", ASSUMED, "MXNet's example, which the authors' source has"),
        Input(
            "Word-LM: words",
            paper_word_lm.VOCABULARY,
            "",
            ASSUMED,
            "Zaremba et al. 2014; the paper names its text alone: Sherlock Holmes",
        ),
    )
    unexplained = (
        "The curves have no number in the text but figure 11's: 1.73 to 2.93 in training, 2.08 to 2.11 in inference, "
        "above what sharing bandwidth gives here (see parax-11), most of all for Word-LM, whose products leave most of "
        "the bandwidth idle.",
        "On CIFAR-10 inference is fastest with 28 instances (figures 22, 23), which the paper puts down to few "
        "channels that need more bandwidth. That lowers what overlapping gains, but nothing in the model makes two "
        "cores of an instance faster than two instances: only gradients cost more with more instances.",
        "So in inference the model leaves the checks no choice: an instance on each core is never slower. Where they "
        "hold they are no evidence.",
        "The paper's ResNets for CIFAR-10 are not given. MXNet's rule has none with 101 layers: it is built as "
        "those of 164 layers or more are.",
    )

    def model(self, measured: Data) -> Data:
        """Return the images per second by phase and net: over instances on 56 cores, and over cores."""
        found: Data = {"instances": {}, "cores": {}}
        for phase, inference in PHASES.items():
            found["instances"][phase] = {net: [rate(net, inference, 56, x) for x in SIZES] for net in NETS}
            each = {net: [rate(net, inference, n, 1) for n in CORES] for net in SCALED}
            one = {net: [rate(net, inference, n, n) for n in CORES] for net in SCALED}
            found["cores"][phase] = {"ParaX": each, "MXNet": one}
        return found | {"words": [rate(WORDS, False, 56, 1) / rate(WORDS, False, 56, 56, batch) for batch in MXNETS]}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check which number of instances is best, and that the speedup on 28 and 56 cores is the greater.

        Without gradients, in inference, nothing in the model is slower with more instances.
        """
        for phase, nets in modelled["instances"].items():
            no_choice = PHASES[phase]
            for net, rates in nets.items():
                best = 28 if net in CIFAR and phase == "inference" else 56
                is_best = float(max(rates) == rates[COUNTS.index(best)])
                yield Check(f"{net}, {phase}: fastest with {best} instances", is_best, 1, 1, fitted=no_choice)
            for net in SCALED:
                each, one = (modelled["cores"][phase][system][net] for system in ("ParaX", "MXNet"))
                over = min((each[i] / each[0]) / (one[i] / one[0]) for i in (-2, -1))
                what = f"{net}, {phase}: ParaX's speedup over MXNet's, 28 and 56 cores, least"
                yield Check(what, over, low=1.0, fitted=no_choice)

        for batch, found in zip(MXNETS, modelled["words"], strict=True):
            name = f"Word-LM over MXNet's, B = {batch}"
            yield within(f"{name}, training: ParaX's throughput", found, self.value(name), 0.2)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the gains of 56 instances."""
        gains = {phase: [r[-1] / r[0] for r in nets.values()] for phase, nets in modelled["instances"].items()}
        text = ", ".join(f"{phase} {min(each):.2f} to {max(each):.2f}x" for phase, each in gains.items())
        cifar = [modelled["instances"]["inference"][net] for net in CIFAR]
        beside = ", ".join(f"{rates[-1] / rates[-2]:.3f}" for rates in cifar)
        lstm = ", ".join(f"{gain:.2f}x" for gain in modelled["words"])
        text = f"56 instances over 1: {text}; over 28, CIFAR-10, inference {beside}"
        return "", f"{text}; Word-LM over one of B = 128, 256 {lstm}"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw images per second against cores; over one instance's, against instances."""
        panels = figure.subplots(1, 3)
        for system, line in (("ParaX", "-"), ("MXNet", "--")):
            rates = modelled["cores"]["training"][system]
            curves(panels[0], CORES, rates, map(COLOURS.get, rates), f"o{line}", f"{{}}, {system}")
        panels[0].set(xlabel="cores", title="training (modelled,\na core's rates fitted)", ylabel="images/s")
        for axes, phase, label in zip(panels[1:], PHASES, ("{}", ""), strict=True):
            rates = {net: [rate / each[0] for rate in each] for net, each in modelled["instances"][phase].items()}
            curves(axes, COUNTS, rates, COLOURS.values(), "o--", label, markersize=3)
            axes.set(
                xlabel="instances on 56 cores",
                title=f"{phase} (modelled,\na core's rates fitted)",
                ylabel="throughput over one instance",
            )
        panels[0].set_ylim(0, None)
        panels[0].legend(frameon=False, fontsize=6)
        panels[1].set_ylim(0.9, 2.3)
        panels[1].legend(frameon=False, fontsize=6, ncol=2, loc="upper left")


FIGURE = Instances()
