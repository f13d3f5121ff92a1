"""SingleCaffe, figure 6: threads of one node that divide a batch, CIFAR-10.

Training is measured with 1 and 2 threads that sum slices of the gradients, as the preset `singlecaffe` has it. Modelled
for 24 threads: each computes its part of the batch, in seconds measured on one core here, since smaller products are
less efficient; then slices of the gradients are summed and the weights updated. The same model with this machine's
rates is held against the 2 threads.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import variants
from cores import bandwidth
from drawing import MODEL, OTHER, OURS, curves, of_paper, plain
from figure import ASSUMED, STATED, Data, Figure, Input, S
from turns import Turns, Way
from variants import BATCHES, BYTES, NODE, THREAD, THREADS, VARIANTS
from verdicts import DIFFERS, INCONCLUSIVE, REPRODUCED, SHAPE, Found, Judged, judged

DATA, ROUNDS, SECONDS = "CIFAR-10", 7, 0.3  # turns of each way to train, and their length
COLOURS, TICKS, ERROR = (OURS, MODEL, OTHER), (1, 2, 4, 8, 16, 24), 0.1


def label(name: str, threads: int) -> str:
    """Return the name of a way to train."""
    return f"{name}, {threads}"


def trained() -> dict[str, float]:
    """Return the seconds of an iteration by way, the median of turns; nets are filled with random images."""
    ways = [
        Way(label(name, n), one.net, BATCHES[DATA], instances=n, gather="slices", solver=one.solver)
        for name, one in VARIANTS[DATA].items()
        for n in (1, 2)
    ]
    with Turns(ways, {}) as turns:
        counts = turns.counts(SECONDS)
        found = [turns.turn(counts, bool(k % 2)) for k in range(ROUNDS)]
    return {name: median(each[name] for each in found) for name in counts}


class OneNodesThreads(Figure):
    """The gain of threads over one thread."""

    id, tag = "singlecaffe-6", S
    inputs = (
        Input("gain", 16, "times", STATED, "section V.B"),
        Input("batch", BATCHES[DATA], "images", STATED, "the least of figure 8; not stated for figure 6"),
        THREAD[DATA],
        *NODE,
        Input("error", ERROR, "of a gain", ASSUMED, "if two threads here are met as well"),
    )

    def measure(self) -> Data:
        """Return the seconds of passes and updates, of training by way, and the bytes a second of a core's memory."""
        return {**variants.measured_here(), "training": trained(), "bandwidth": 1e9 * bandwidth(1 << 24)}

    def seconds(self, measured: Data, name: str, threads: int, here: bool = False) -> float:
        """Return the seconds of an iteration on the paper's node, or here."""
        of = (
            variants.here(measured, DATA, name)
            if here
            else variants.of_paper(measured, DATA, name, self.value("one thread"))
        )
        rate = measured["bandwidth"] if here else self.value("bandwidth")
        return variants.iteration_of(of, BATCHES[DATA], threads, BYTES[DATA], rate, self.value("barrier"))

    def gains(self, measured: Data, name: str) -> list[float]:
        """Return the gain over one thread by the number of threads."""
        return [self.seconds(measured, name, 1) / self.seconds(measured, name, n) for n in THREADS]

    def model(self, measured: Data) -> Data:
        """Return gains over one thread, the range of the best, and how far the model is off for two threads here."""
        if not measured:
            return {}
        names = VARIANTS[DATA]
        best = self.spread(lambda: max(max(self.gains(measured, name)) for name in names))
        two = [self.seconds(measured, name, 2, here=True) / measured["training"][label(name, 2)] for name in names]
        return {
            "gains": {name: self.gains(measured, name) for name in names},
            "best": vars(best),
            "error": max(abs(1 - one) for one in two),
        }

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge the best gain: a miss within the model's own error is no evidence."""
        if not modelled:
            return Judged(INCONCLUSIVE, "-")
        best, error = Found(**modelled["best"]), modelled["error"]
        verdict = judged(best, self.value("gain"), ERROR)
        within = abs(best.value / self.value("gain") - 1) < error
        two = [measured["training"][label(name, 1)] / measured["training"][label(name, 2)] for name in VARIANTS[DATA]]
        text = f"{best.words()} modelled, by a model that is {error:.0%} off for 2 threads here; these gain "
        text += f"{min(two):.2f} to {max(two):.2f}"
        known = verdict in (REPRODUCED, SHAPE, DIFFERS) and error <= ERROR
        return Judged(verdict if known or not within else INCONCLUSIVE, text)

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw the gain against threads."""
        rows = {f"{name}, modelled": each for name, each in modelled["gains"].items()}
        curves(axes, THREADS, rows, COLOURS, "--")
        for name, colour in zip(VARIANTS[DATA], COLOURS, strict=True):
            two = measured["training"][label(name, 1)] / measured["training"][label(name, 2)]
            axes.plot([2], [two], "o", color=colour)
        axes.plot([], [], "o", color="grey", label="measured, 2 threads here")
        axes.plot(THREADS, THREADS, ":", color="grey", label="linear")
        of_paper(axes, [24], [self.value("gain")], "up to 16")
        axes.set(xlabel="threads", ylabel="times as fast as one thread", xscale="log", yscale="log")
        for axis in (axes.xaxis, axes.yaxis):
            plain(axis, TICKS)


FIGURE = OneNodesThreads()
