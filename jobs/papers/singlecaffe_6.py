"""SingleCaffe, figures 6 to 8: threads of one node that divide a batch.

The seconds of forward and backward passes are measured on one core here for batches of 1 to 200 images: smaller
products are less efficient. Modelled for 24 threads: each computes its part of the batch, then slices of the gradients
are summed and the weights updated.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from drawing import curves
from figure import ASSUMED, DERIVED, MODEL, OTHER, OURS, PAPER, STATED, Check, Data, Figure, Input, holds, within

import scaffe
from scaffe import models

SIZES, TURNS, THREADS = (1, 2, 3, 5, 8, 12, 20, 32, 50, 72, 100, 144, 200), 7, tuple(range(1, 25))
NETS = {"CIFAR-10": "cifar10_full", "MNIST": "lenet"}
BATCHES = {"CIFAR-10": (100, 150, 200), "MNIST": (64, 96, 128)}
BYTES = {"CIFAR-10": 358_312, "MNIST": 1_724_320}  # of gradients
COLOURS = OURS, MODEL, OTHER


def passes(name: str, batch: int) -> float:
    """Return the seconds of a forward and a backward pass on one core, the least: other work distorts it."""
    net = scaffe.Net(models.get(name).train_val(batch=batch, data="input"), phase=scaffe.TRAIN)
    seconds = []
    for _ in range(TURNS + 1):
        start = time.perf_counter()
        net.forward()
        net.backward()
        seconds.append(time.perf_counter() - start)
    net.close()
    return min(seconds[1:])


class OneNodesThreads(Figure):
    """The gain of threads over one thread."""

    id, rank = "singlecaffe-6", 13
    title = "Threads of one node: gain, and the influence of the batch"
    source = "SingleCaffe, figures 6 to 8, sections V.B and V.C"
    paper = "up to 16x on CIFAR-10, less on MNIST; a larger batch is faster; batch 64 rises, then falls"
    inputs = (
        Input("gain", 16, "over one thread", STATED, "section V.B, in the best case"),
        Input("batch, CIFAR-10", 100, "images", ASSUMED, "not stated for figure 6; the least of figure 8"),
        Input("batch, MNIST", 64, "images", STATED, "section V.A"),
        Input("bandwidth", 2 * 59.7e9, "bytes/s", ASSUMED, "two sockets of four channels of DDR3-1866"),
        Input("barrier", 20e-6, "s", ASSUMED, "three meetings of 24 threads in an iteration"),
        *(
            Input(f"{net}, gradients", n, "bytes", DERIVED, "Caffe's cifar10_full and LeNet")
            for net, n in BYTES.items()
        ),
    )
    unexplained = (
        "CIFAR-10's batch in figure 6 is not stated, nor any gain but 16. The nets' definitions are not given: the "
        "variants' lengths of training match Caffe's cifar10_full.",
        "Times of small batches are those of this machine and of scaffe, whose layers are called from Python.",
        "Memory that threads share while they compute is not in the model.",
    )

    def measure(self) -> Data:
        """Return the seconds of a forward and a backward pass by net and batch."""
        return {net: [passes(name, n) for n in SIZES] for net, name in NETS.items()}

    def seconds(self, measured: Data, net: str, batch: int, threads: int) -> float:
        """Return the seconds of an iteration: the largest part of the batch, then sums and update if there are more."""
        computing = float(np.interp(-(-batch // threads), SIZES, measured[net]))
        if threads == 1:
            return computing
        moved = (3 * threads + 3) * BYTES[net]  # additions, one update
        return computing + moved / self.value("bandwidth") + 3 * self.value("barrier")

    def model(self, measured: Data) -> Data:
        """Return images per second over those of one thread, by net and batch, for 1 to 24 threads."""
        if not measured:
            return {}
        gains = {}
        for net, batches in BATCHES.items():
            one = batches[0] / self.seconds(measured, net, batches[0], 1)
            gains[net] = {str(b): [b / self.seconds(measured, net, b, n) / one for n in THREADS] for b in batches}
        return {"gains": gains}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check the best gains, the order of batches at 12 threads, and that batch 64 falls in the end."""
        if not measured:
            return
        gains = modelled["gains"]
        best = {net: max(gains[net][str(round(self.value(f"batch, {net}")))]) for net in NETS}
        yield within("CIFAR-10: best gain", best["CIFAR-10"], self.value("gain"), 0.2)
        yield Check("best gain, MNIST over CIFAR-10", best["MNIST"] / best["CIFAR-10"], high=1.0)
        twelve = [each[11] for each in gains["CIFAR-10"].values()]
        yield holds("CIFAR-10, 12 threads: the larger the batch, the faster", twelve == sorted(twelve))
        small = gains["MNIST"]["64"]
        yield Check("MNIST, batch 64: 24 threads over the best", small[-1] / max(small), high=0.99)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return an image's time by batch, and the best gains."""
        if not measured:
            return "", "-"
        per = {net: [1e3 * each[SIZES.index(n)] / n for n in (5, 100)] for net, each in measured.items()}
        text = ", ".join(f"{net} {small:.2f} and {large:.2f} ms" for net, (small, large) in per.items())
        gains = {net: max(modelled["gains"][net][str(BATCHES[net][0])]) for net in NETS}
        model = ", ".join(f"{net} {gain:.1f}x" for net, gain in gains.items())
        return f"an image in batches of 5 and 100: {text}", f"best gain: {model}"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the gain against threads for each batch."""
        for axes, (net, each) in zip(figure.subplots(1, 2), modelled.get("gains", {}).items(), strict=True):
            curves(axes, THREADS, each, COLOURS, "--", "batch {}, modelled")
            axes.plot(THREADS, THREADS, ":", color="grey", label="linear")
            if net == "CIFAR-10":
                axes.axhline(self.value("gain"), color=PAPER, linewidth=0.8, label="paper: 16 at best")
            axes.set(xlabel="threads", ylabel="images/s over one thread", title=net, ylim=(0, 26))


FIGURE = OneNodesThreads()
