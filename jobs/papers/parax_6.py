"""ParaX, figure 6: the time of compute-intensive over that of access-intensive layers, on a socket.

Each layer of an inference takes the start of its kernel, and the longer of its operations and its bytes. A layer is
compute-intensive if it multiplies matrices. `LSTM` is the paper's name for two layers of an LSTM.
"""

from __future__ import annotations

from typing import Any

import shapes
from drawing import MODEL, PAPER, bars, ranges
from figure import ASSUMED, STATED, Data, Figure, Input, S
from verdicts import DIFFERS, INCONCLUSIVE, REPRODUCED, Found, Judged

WIDTH, STEPS, BATCH, BYTES = 650, 35, 64, 4
PRODUCTS = 2  # of a step: of the input and of the state
GATES = (  # a step's kernels, and elements that they read and write, in the width of the layer
    (1, 8, 4),  # sum of two products
    (1, 4, 4),  # slices
    (4, 4, 4),  # sigmoids, tanh
    (2, 4, 2),  # forget gate by cell, input gate by candidate
    (1, 2, 1),  # cell
    (1, 1, 1),  # tanh of cell
    (1, 2, 1),  # output gate by it
)
NETS = {"ResNet-50": "resnet50", "LSTM": "", "NCF": "ncf"}


def lstm(flops: float, bandwidth: float, start: float) -> tuple[float, float]:
    """Return the seconds of an LSTM layer's products and of its element-wise operations, for all steps.

    A product reads weights, input and state, and writes gates.
    """
    products = 2 * BATCH * 4 * WIDTH * 2 * WIDTH
    moved = BYTES * (4 * WIDTH * 2 * WIDTH + BATCH * (2 * WIDTH + 8 * WIDTH))
    kernels = sum(count for count, _, _ in GATES)
    element_wise = BYTES * BATCH * WIDTH * sum(read + written for _, read, written in GATES)
    computing = PRODUCTS * start + max(products / flops, moved / bandwidth)
    return STEPS * computing, STEPS * (kernels * start + element_wise / bandwidth)


def layered(name: str, flops: float, bandwidth: float, start: float) -> tuple[float, float]:
    """Return the seconds of a net's layers with matrix products, and of the others, for a batch in inference."""
    seconds = [0.0, 0.0]
    for work in shapes.works(name, training=False).values():
        if work.moved[0] and work.units:  # views start no kernel
            seconds[not work.flops[0]] += start + BATCH * max(work.flops[0] / flops, work.moved[0] / bandwidth)
    return seconds[0], seconds[1]


class Intensity(Figure):
    """How much of the time bandwidth limits."""

    id, tag = "parax-6", S
    inputs = (
        Input("limit", 1.5, "", STATED, "section 3"),
        Input("CPU", 28 * 2.7e9 * 64, "operations/s", STATED, "section 2.1: 28 cores, 64 operations a cycle"),
        Input("memory", 140.8e9, "bytes/s", ASSUMED, "six channels of DDR4-2933", 100e9, None),
        Input("start", 5e-6, "s of a kernel", ASSUMED, "28 threads begin and meet", 0.0, 1e-5),
        Input("efficiency", 0.75, "of the peak in products", ASSUMED, "parax-11 fits as much", 0.6, 0.9),
        Input("batch", BATCH, "samples", STATED, "figure 6"),
        Input("LSTM", WIDTH, "elements", STATED, "section 5.1; 11 kernels a step beside 2 products, as MXNet's cell"),
        Input("NCF", 8, "factors", ASSUMED, "He et al. 2017, section 4.1; MovieLens 1M"),
    )

    def ratio(self, net: str) -> float:
        """Return compute-intensive over access-intensive time of a net."""
        rates = self.value("CPU") * self.value("efficiency"), self.value("memory"), self.value("start")
        computing, moving = layered(NETS[net], *rates) if NETS[net] else lstm(*rates)
        return computing / moving

    def model(self, measured: Data) -> Data:
        """Return the ratios by net, with their ranges."""
        return {net: vars(self.spread(lambda n=net: self.ratio(n))) for net in NETS}

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge whether all nets are below the limit, throughout the ranges."""
        found = {net: Found(**each) for net, each in modelled.items()}
        limit = self.value("limit")
        over = [one.low >= limit for one in found.values()]
        verdict = (
            REPRODUCED if all(one.high < limit for one in found.values()) else DIFFERS if any(over) else INCONCLUSIVE
        )
        return Judged(verdict, ", ".join(f"{net} {one.words('', 2)}" for net, one in found.items()))

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw the ratios with their ranges."""
        values = [each["value"] for each in modelled.values()]
        bars(axes, list(NETS), [("modelled, with its range", values, MODEL)])
        ranges(axes, 0, modelled.values())
        axes.axhline(self.value("limit"), color=PAPER, linestyle="--", label="paper: below 1.5")
        axes.set(ylabel="compute- over access-intensive layers, time", ylim=(0, 3.6))


FIGURE = Intensity()
