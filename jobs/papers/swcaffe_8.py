"""swCaffe, table III: five nets on SW26010 and on a CPU, by a roofline of each layer.

An image takes, in each layer and pass, the longer of its operations at the peak and of its blobs' bytes at the memory's
rate. Beside it the nets train on one core here, with batches that take a second or two.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import shapes
from conditions import seconds_of
from core_rate import core_rate
from drawing import MODEL, PAPER, bars
from figure import ASSUMED, STATED, Data, Figure, Input, NotMeasurable, S
from iteration import build, ours, zoo
from verdicts import DIFFERS, REPRODUCED, Judged, compared

NETS = {"AlexNet": "alexnet", "VGG-16": "vgg16", "VGG-19": "vgg19", "ResNet-50": "resnet50", "GoogLeNet": "googlenet"}
CHIPS, ERROR = ("SW26010", "CPU"), 0.2
TABLE_3 = {  # images/s
    "SW26010": dict(zip(NETS, (94.17, 6.21, 5.52, 5.56, 14.97), strict=True)),
    "CPU": dict(zip(NETS, (12.01, 1.06, 1.07, 1.99, 4.92), strict=True)),
}
PROCESSORS = {"SW26010": (4 * 742.4e9, 4 * 28e9), "CPU": (1.28e12, 68e9)}  # peak, bytes/s
K40M = 4.29e12, 288e9
BATCHES = dict(zip(NETS, (32, 4, 4, 8, 16), strict=True))  # here; 256, 64, 64, 32 and 128 in the paper
ROUNDS = 3


def operations(net: str) -> float:
    """Return the operations of an image in training."""
    return sum(sum(work.flops) for work in shapes.works(NETS[net]).values())


def seconds_of_nets() -> dict[str, list[float]]:
    """Return the seconds of each iteration by net, after one that is not timed; the nets take turns. Takes 8 GB."""
    nets = {name: build(zoo(model, BATCHES[name]), "onednn") for name, model in NETS.items()}
    iterations = {name: ours(net) for name, net in nets.items()}
    rounds = [[seconds_of(iteration, 1)[0] for iteration in iterations.values()] for _ in range(ROUNDS + 1)]
    for net in nets.values():
        net.close()
    return dict(zip(nets, map(list, zip(*rounds[1:], strict=True)), strict=True))


class Processors(Figure):
    """What peaks and memory permit, beside what was measured."""

    id, tag = "swcaffe-8", S
    slow = True
    inputs = (
        *(
            Input(f"{name}: {what}", rate, unit, STATED, "table I, sections III.A and VI")
            for name, rates in PROCESSORS.items()
            for what, rate, unit in zip(("peak", "memory"), rates, ("operations/s", "bytes/s"), strict=True)
        ),
        Input("error", ERROR, "of a ratio", ASSUMED, "no SW26010 is at hand"),
    )

    def measure(self) -> Data:
        """Return the GFLOP/s of a product on one core, and the median seconds of an iteration by net."""
        product = core_rate("float32")
        if product is None:
            raise NotMeasurable("oneDNN is not installed")
        return {
            "product": product.best(),
            "seconds": {net: median(each) for net, each in seconds_of_nets().items()},
        }

    def model(self, measured: Data) -> Data:
        """Return the images per second that the roofline permits by processor and net, and each net's operations."""
        rates = {
            name: {net: 1 / shapes.roofline(model, *PROCESSORS[name]) for net, model in NETS.items()}
            for name in PROCESSORS
        }
        return {"rates": rates, "operations": {net: operations(net) for net in NETS}}

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge the least and the greatest ratio."""
        chip, cpu = (modelled["rates"][name] for name in CHIPS)
        found = [chip[net] / cpu[net] for net in NETS]
        both = [
            compared(ours, paper, ERROR) for ours, paper in zip((min(found), max(found)), (3.04, 7.84), strict=True)
        ]
        shares = parts(measured, modelled).values() if measured else (0.0,)
        text = (
            f"{min(found):.1f} to {max(found):.1f} by a roofline; a core here at {min(shares):.0%} to {max(shares):.0%}"
        )
        return Judged(REPRODUCED if set(both) == {REPRODUCED} else DIFFERS, f"{text} of its product's rate")

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw the ratios by net."""
        chip, cpu = (modelled["rates"][name] for name in CHIPS)
        paper = [TABLE_3["SW26010"][net] / TABLE_3["CPU"][net] for net in NETS]
        rows = [("paper, table III", paper, PAPER), ("roofline", [chip[net] / cpu[net] for net in NETS], MODEL)]
        bars(axes, list(NETS), rows)
        axes.axhspan(3.04, 7.84, color="lightgrey", alpha=0.5, label="paper: 3.04 to 7.84", zorder=0)
        axes.set(ylabel="SW26010 over CPU, images/s", ylim=(0, 11))


def images(measured: Data) -> dict[str, float]:
    """Return the measured images per second by net."""
    return {net: BATCHES[net] / measured["seconds"][net] for net in NETS}


def parts(measured: Data, modelled: Data) -> dict[str, float]:
    """Return the part of the core's product rate that each net's iteration reaches."""
    peak = 1e9 * measured["product"]
    return {net: rate * modelled["operations"][net] / peak for net, rate in images(measured).items()}


FIGURE = Processors()
