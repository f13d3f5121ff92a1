"""NUMA-Caffe, figure 12: the speedup of CIFAR-10's convolutions on four NUMA nodes, by the times of numa_caffe_9.py."""

from __future__ import annotations

from typing import Any

from drawing import MODEL, PAPER, bars, ranges
from figure import STATED, Data, Figure, Input, S
from numa_caffe_9 import FIGURE as DOMAINS
from numa_nodes import BATCHES, BOXES, Part, parts
from verdicts import DIFFERS, REPRODUCED, SHAPE, Found, Judged, judged

CONVOLUTIONS = {"conv1": 1.44, "conv2": 2.9, "conv3": 1.24}  # NUMA over Intel, CIFAR-10
NET, BOX, ERROR = "CIFAR-10", BOXES["SB"], 0.2


def seconds(system: str, layer: Part) -> float:
    """Return the seconds of a layer, forward and backward, on all nodes of SB."""
    if system == "Intel":
        return DOMAINS.intel([layer], BOX, BOX.nodes, BATCHES[NET], 0.0)
    return DOMAINS.intel([layer], BOX, 1, BATCHES[NET] / BOX.nodes, 0.0)


class Layers(Figure):
    """Which layers gain from blobs at home."""

    id, tag = "numa-caffe-12", S
    inputs = (
        *(Input(name, found, "times", STATED, "section 5.2") for name, found in CONVOLUTIONS.items()),
        *(one for one in DOMAINS.inputs if one.name.startswith("SB:") or ":" not in one.name),
    )

    def model(self, measured: Data) -> Data:
        """Return Intel-Caffe's time over NUMA-Caffe's by layer, with its range."""
        layers = {layer.name: layer for layer in parts(NET)}

        def gain(name: str) -> float:
            return seconds("Intel", layers[name]) / seconds("NUMA", layers[name])

        return {name: vars(DOMAINS.spread(lambda n=name: gain(n))) for name in CONVOLUTIONS}

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge the three gains, and their order."""
        found = {name: Found(**each) for name, each in modelled.items()}
        verdicts = {judged(found[name], paper, ERROR) for name, paper in CONVOLUTIONS.items()}
        rising = sorted(found.values(), key=lambda one: one.value)
        order = [found[name] for name in sorted(CONVOLUTIONS, key=CONVOLUTIONS.__getitem__)] == rising
        text = ", ".join(f"{name} {one.words()}" for name, one in found.items())
        return Judged(REPRODUCED if verdicts == {REPRODUCED} else SHAPE if order else DIFFERS, text)

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw the gains as bars."""
        values = [each["value"] for each in modelled.values()]
        bars(axes, list(CONVOLUTIONS), [("paper", CONVOLUTIONS.values(), PAPER), ("modelled", values, MODEL)])
        ranges(axes, 0.2, modelled.values())
        axes.axhline(1, color="grey", linewidth=0.8)
        axes.set(ylabel="NUMA-Caffe over Intel-Caffe", ylim=(0, 4), title="CIFAR-10 on SB, four nodes")


FIGURE = Layers()
