"""NUMA-Caffe, figures 12 to 14: the speedup of single layers, by a roofline of each.

A layer's matrix products are limited by all cores, its blobs by the memory that they lie in, as in numa-caffe-9: with
Intel-Caffe 84 % on the first node, with NUMA-Caffe at home.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import shapes
from drawing import bars
from figure import ASSUMED, MODEL, OURS, PAPER, STATED, Check, Data, Figure, Input, within
from numa_caffe_9 import BOXES
from numa_caffe_9 import FIGURE as DOMAINS

CONVOLUTIONS = {"conv1": 1.44, "conv2": 2.9, "conv3": 1.24}  # NUMA over Intel, CIFAR-10
MOST = 16  # layers of GoogLeNet
BOX = BOXES["SB"]


def seconds(system: str, name: str) -> dict[str, float]:
    """Return the seconds of each layer for one image, forward and backward, on all nodes."""
    rate = BOX.nodes * BOX.flops * DOMAINS.value("efficiency")
    first = DOMAINS.value("first node")
    found = {}
    for layer, work in shapes.works(name).items():
        products, moved = sum(work.flops) / rate, sum(work.moved)
        if system == "NUMA":
            found[layer] = products + moved / (BOX.nodes * BOX.memory)
        else:
            remote = first * moved * (BOX.nodes - 1) / BOX.nodes
            found[layer] = products + max(first * moved / BOX.memory, remote / BOX.link)
    return found


class Layers(Figure):
    """Which layers gain from blobs at home."""

    id, rank = "numa-caffe-12", 19
    title = "Speedup of single layers on four NUMA nodes"
    source = "NUMA-Caffe, figures 12 to 14, section 5.2"
    paper = "conv1 1.44, conv2 2.9, conv3 1.24 over Intel-Caffe (CIFAR-10); 16 layers are 80 % of GoogLeNet's time"
    inputs = (
        *(Input(f"{name}, NUMA over Intel", found, "", STATED, "section 5.2") for name, found in CONVOLUTIONS.items()),
        Input("16 layers", 80, "% of GoogLeNet's time", STATED, "section 5.2"),
        Input("operations", BOX.flops, "1/s of a node", ASSUMED, "as in numa-caffe-9"),
        Input("memory", BOX.memory, "bytes/s of a node", ASSUMED, "as in numa-caffe-9"),
        Input("link", BOX.link, "bytes/s out of a node", ASSUMED, "as in numa-caffe-9"),
    )
    unexplained = (
        "Which layers are the 16 is not said, nor on which system 80 % is measured. Here Intel-Caffe's time counts.",
        "conv2 gains twice what conv1 and conv3 do, though its operations for each byte lie between theirs.",
        "Layers of AlexNet and GoogLeNet have no number in the text.",
    )

    def model(self, measured: Data) -> Data:
        """Return NUMA over Intel by CIFAR-10's layers, and the part of GoogLeNet's 16 longest layers, percent."""
        both = {system: seconds(system, "cifar10_quick") for system in ("Intel", "NUMA")}
        longest = sorted(seconds("Intel", "googlenet").values(), reverse=True)
        return {
            "gains": {name: both["Intel"][name] / both["NUMA"][name] for name in CONVOLUTIONS},
            "part": 100 * sum(longest[:MOST]) / sum(longest),
        }

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check each gain and the part within 20 %."""
        for name, found in modelled["gains"].items():
            yield within(f"CIFAR-10, {name}: NUMA over Intel", found, CONVOLUTIONS[name], 0.2)
        yield within(
            f"GoogLeNet: the {MOST} longest layers, % of the time", modelled["part"], self.value("16 layers"), 0.2
        )

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the gains and the part."""
        gains = ", ".join(f"{name} {found:.2f}" for name, found in modelled["gains"].items())
        return "", f"{gains}; 16 layers {modelled['part']:.0f} %"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the gains as bars."""
        axes = figure.subplots()
        model = ("modelled, rates assumed", modelled["gains"].values(), MODEL)
        bars(axes, [("paper", CONVOLUTIONS.values(), PAPER), model])
        axes.axhline(1, color=OURS, linestyle=":", linewidth=0.8)
        axes.set_xticks(range(len(CONVOLUTIONS)), list(CONVOLUTIONS))
        axes.set(ylabel="NUMA-Caffe over Intel-Caffe", title="CIFAR-10, SB, four nodes")
        axes.legend(frameon=False)


FIGURE = Layers()
