"""ParaX, figures 13, 14, 20 and 21: throughput against instances, by the simulation of parax_11.py on both sockets."""

from __future__ import annotations

from functools import cache
from typing import Any

from drawing import MODEL, OTHER, OURS, curves, of_paper
from figure import STATED, Data, Figure, Input, S
from parax_11 import ERROR, SPEEDUPS, passes
from parax_11 import FIGURE as BARRIERS
from verdicts import DIFFERS, INCONCLUSIVE, REPRODUCED, Found, Judged

from scaffe.parallel.instances.simulation.machine import Machine
from scaffe.parallel.instances.simulation.predict import predict
from scaffe.parallel.instances.simulation.training import Division

NETS = {"ResNet-50": "resnet50", "ResNet-101": "resnet101", "MobileNet-v1": "mobilenet", "Inception-BN": "inception_bn"}
SIZES = 56, 28, 2, 1  # cores of an instance, for 1 to 56 instances
COUNTS = [56 // x for x in SIZES]
COLOURS = OURS, "navy", MODEL, OTHER
BATCH, HALVED = 64, 32  # images of an instance; of a ResNet's with 56 instances


@cache
def rate(machine: Machine, name: str, x: int) -> float:
    """Return the images per second of 56 cores in instances of x, in training."""
    images = HALVED if x == 1 and name.startswith("resnet") else BATCH
    return predict(passes(False, name), machine, Division(x, images), 1).rate


class Instances(Figure):
    """One instance on each core against fewer instances."""

    id, tag = "parax-13", S
    slow = True
    inputs = (
        *(
            one
            for one in BARRIERS.inputs
            if one.name in ("bandwidth", "core bandwidth", "core rate", "barrier", "jitter")
        ),
        Input("batch", BATCH, "images of an instance", STATED, "section 5; 32 for ResNets with 56"),
        Input(
            "error", ERROR, "of a rate", *[(one.origin, one.where) for one in BARRIERS.inputs if one.name == "error"][0]
        ),
    )

    def model(self, measured: Data) -> Data:
        """Return the images per second by net and number of instances."""
        machine = BARRIERS.machine(2)
        return {net: [rate(machine, name, x) for x in SIZES] for net, name in NETS.items()}

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge whether 56 instances are the fastest, by more than the model's error."""
        over = Found.of(each[-1] / max(each[:-1]) for each in modelled.values())
        one = [each[-1] / each[0] for each in modelled.values()]
        text = f"over the next best {over.low:.2f} to {over.high:.2f}, over one {min(one):.2f} to {max(one):.2f}"
        verdict = REPRODUCED if over.low > 1 + ERROR else DIFFERS if over.high < 1 - ERROR else INCONCLUSIVE
        return Judged(verdict, text)

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw throughput over one instance's against instances."""
        rows = {f"{net}, modelled": [rate / each[0] for rate in each] for net, each in modelled.items()}
        curves(axes, COUNTS, rows, COLOURS)
        of_paper(axes, [56, 56], SPEEDUPS["training"], "1.73 to 2.93 (figure 11), fastest at 56")
        axes.set(
            xlabel="instances on 56 cores", ylabel="throughput over one instance", ylim=(0.8, 4.6), title="Training"
        )


FIGURE = Instances()
