"""SingleCaffe, figure 10: one node against many on MNIST, by three solvers, as in singlecaffe_9.py."""

from __future__ import annotations

from typing import Any

import variants
from drawing import MODEL, OTHER, OURS, PAPER, curves, plain
from figure import ASSUMED, Data, Figure, Input, S
from singlecaffe_9 import ERROR, OFF
from variants import LINKS, NODE, THREAD, THREADS, VARIANTS
from verdicts import DIFFERS, INCONCLUSIVE, REPRODUCED, Found, Judged

WAY, COLOURS = "allreduce", (OURS, OTHER, MODEL)
PAST, SLIGHTLY = 5, 0.8  # nodes; 'slightly less than 1' is at least this


class Solvers(Figure):
    """The speed ratio of one node to many, by solver."""

    id, tag = "singlecaffe-10", S
    inputs = (
        THREAD["MNIST"],
        *NODE,
        *LINKS,
        OFF,
        Input("slightly less", SLIGHTLY, "at least", ASSUMED, "no number"),
    )

    def measure(self) -> Data:
        """Return the seconds of passes and updates here."""
        return variants.measured_here()

    def model(self, measured: Data) -> Data:
        """Return the speed ratios by solver, and the range of RMSProp's largest past 5 nodes."""
        if not measured:
            return {}
        found = {name: variants.ratios(measured, name, WAY, self.value) for name in VARIANTS["MNIST"]}
        past = self.spread(lambda: max(variants.ratios(measured, "RMSProp", WAY, self.value)[PAST:]))
        return {"ratios": found, "past": vars(past)}

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge RMSProp's largest ratio past 5 nodes."""
        if not modelled:
            return Judged(INCONCLUSIVE, "-")
        past = Found(**modelled["past"])
        last = modelled["ratios"]["RMSProp"][-1]
        if past.low > 1 + ERROR:
            verdict = DIFFERS
        else:
            verdict = REPRODUCED if past.high < 1 - ERROR and last > SLIGHTLY else INCONCLUSIVE
        return Judged(verdict, f"RMSProp {past.words()} at 6 nodes, {last:.2f} at 24, by an allreduce")

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw the speed ratio against nodes by solver."""
        rows = {f"{name}, modelled": each for name, each in modelled["ratios"].items()}
        curves(axes, THREADS, rows, COLOURS, "--")
        axes.plot((PAST, 24), (0.95, 0.95), color=PAPER, linewidth=4, label="paper: RMSProp slightly less than 1")
        axes.axhline(1, color="grey", linewidth=0.8)
        axes.set(xlabel="nodes", ylabel="speed ratio, one node over many", yscale="log", ylim=(0.8, 20))
        plain(axes.yaxis, (1, 2, 5, 10, 20))


FIGURE = Solvers()
