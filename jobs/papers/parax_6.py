"""ParaX, figure 6: the time of compute-intensive over that of access-intensive layers, on a CPU and a GPU.

Each layer of an inference takes the longer of its operations and its bytes, on a socket of the paper's machine and on a
P100. A layer is compute-intensive if it multiplies matrices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import shapes
from drawing import bars
from figure import ASSUMED, DERIVED, MODEL, OURS, PAPER, STATED, Check, Data, Figure, Input, within

WIDTH, STEPS, BATCH, BYTES = 650, 35, 64, 4
GATES = {
    "sums of two products": (8, 4),
    "sigmoid, tanh": (4, 4),
    "cell": (4, 1),
    "output": (2, 1),
    "tanh of cell": (1, 1),
}


def lstm(flops: float, bandwidth: float) -> tuple[float, float]:
    """Return the seconds of an LSTM layer's products and of its element-wise operations, for all steps.

    A product reads weights, input and state, and writes gates. GATES: elements that each operation reads and writes,
    in the width of the layer.
    """
    products = 2 * BATCH * 4 * WIDTH * 2 * WIDTH
    moved = BYTES * (4 * WIDTH * 2 * WIDTH + BATCH * (2 * WIDTH + 8 * WIDTH))
    element_wise = BYTES * BATCH * WIDTH * sum(read + written for read, written in GATES.values())
    return STEPS * max(products / flops, moved / bandwidth), STEPS * element_wise / bandwidth


def cnn(name: str, flops: float, bandwidth: float) -> tuple[float, float]:
    """Return the seconds of a net's layers with matrix products, and of the others, for an image in inference."""
    seconds = [0.0, 0.0]
    for work in shapes.works(name, training=False).values():
        seconds[not work.flops[0]] += max(work.flops[0] / flops, work.moved[0] / bandwidth)
    return seconds[0], seconds[1]


class Intensity(Figure):
    """How much of the time bandwidth limits."""

    id, rank = "parax-6", 15
    title = "Time of compute-intensive over that of access-intensive layers"
    source = "ParaX, figure 6, section 3"
    paper = "CPU less than 1.5; GPU up to 2.7 (ResNet-50, LSTM, NCF)"
    inputs = (
        Input("CPU", 28 * 2.7e9 * 64, "operations/s", STATED, "section 2.1: 28 cores, 64 operations a cycle"),
        Input("CPU memory", 140.8e9, "bytes/s", ASSUMED, "six channels of DDR4-2933"),
        Input("GPU", 10.6e12, "operations/s", STATED, "section 2.1, P100"),
        Input("GPU memory", 732e9, "bytes/s", STATED, "section 2.1, P100"),
        Input("efficiency", 0.75, "of the peak in products", ASSUMED, "of both; parax-11's fitted rate has 0.75"),
        Input("batch", BATCH, "sequences", STATED, "figure 6"),
        Input("LSTM", WIDTH, "elements", STATED, "section 5.1: 650 neurons"),
        Input("steps", STEPS, "", DERIVED, "of no influence on the ratio"),
    )
    unexplained = (
        "Figure 6 has no numbers in the text but the two bounds. Which net has 2.7 is not said.",
        "An LSTM's element-wise operations move few bytes: 12 widths of blobs beside products over 8 widths squared. "
        "The paper's ratio below 1.5 must have starts of small kernels, or memory that is written anew, in it.",
        "NCF is left out: the sizes of its layers are not stated.",
    )

    def model(self, measured: Data) -> Data:
        """Return the ratio by net and processor."""
        found: Data = {}
        for name in ("CPU", "GPU"):
            rates = self.value(name) * self.value("efficiency"), self.value(f"{name} memory")
            pairs = {"ResNet-50": cnn("resnet50", *rates), "LSTM": lstm(*rates)}
            found[name] = {net: computing / moving for net, (computing, moving) in pairs.items()}
        return {"ratios": found}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check the CPU's bound for both nets, and the GPU's ratio of ResNet-50."""
        ratios = modelled["ratios"]
        for net, found in ratios["CPU"].items():
            yield Check(f"{net}: CPU, compute-intensive over access-intensive", found, high=1.5)
        yield within("ResNet-50: GPU, compute-intensive over access-intensive", ratios["GPU"]["ResNet-50"], 2.7, 0.2)
        least = min(ratios["GPU"][net] / found for net, found in ratios["CPU"].items())
        yield Check("GPU's ratio over the CPU's, least", least, low=1.0)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the ratios."""
        each = modelled["ratios"].items()
        text = "; ".join(f"{name} " + ", ".join(f"{net} {r:.1f}" for net, r in found.items()) for name, found in each)
        return "", text

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the ratios as bars."""
        axes = figure.subplots()
        ratios = modelled["ratios"]
        bars(axes, [(name, ratios[name].values(), colour) for name, colour in (("CPU", OURS), ("GPU", MODEL))])
        axes.axhline(1.5, color=PAPER, linestyle=":", label="paper: CPU below")
        axes.axhline(2.7, color=PAPER, linestyle="--", label="paper: GPU up to")
        axes.set_xticks(range(len(ratios["CPU"])), list(ratios["CPU"]))
        axes.set(ylabel="compute-intensive over access-intensive, time", title="Modelled: inference, batch 64")
        axes.legend(frameon=False)


FIGURE = Intensity()
