"""SingleCaffe, figure 9: one node with many threads against synchronous MPI over many nodes (DistCaffe), on MNIST.

The speed ratio is the time of an iteration over n nodes, one thread each, over that of one node at its best. Nodes
compute b / n images, in seconds that grow with the images as on one core here, and exchange the gradients. The paper
does not say how: an allreduce, a server, to which all nodes send, and a tree stand for DistCaffe.
"""

from __future__ import annotations

from typing import Any

import variants
from drawing import MODEL, OTHER, OURS, PAPER, curves, plain
from figure import DERIVED, Data, Figure, Input, S
from variants import LINKS, NODE, THREAD, THREADS
from verdicts import DIFFERS, INCONCLUSIVE, REPRODUCED, SHAPE, Found, Judged

WAYS = {"allreduce": OURS, "server": MODEL, "tree": OTHER}
ERROR = 0.05
OFF = Input("error", ERROR, "of an iteration", DERIVED, "docs/simulate.md: SC-B on 2 to 8 emulated nodes")


class OneNode(Figure):
    """The speed ratio of one node to many."""

    id, tag = "singlecaffe-9", S
    inputs = (
        THREAD["MNIST"],
        *NODE,
        *LINKS,
        OFF,
    )

    def measure(self) -> Data:
        """Return the seconds of passes and updates here."""
        return variants.measured_here()

    def model(self, measured: Data) -> Data:
        """Return the speed ratios by way, and the range of the least."""
        if not measured:  # how the seconds of a core grow with its images is measured
            return {}
        found = {way: variants.ratios(measured, "SGD", way, self.value) for way in WAYS}
        least = {
            way: vars(self.spread(lambda w=way: min(variants.ratios(measured, "SGD", w, self.value)))) for way in WAYS
        }
        return {"ratios": found, "least": least}

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge the least ratio of each way by the model's error."""
        if not modelled:
            return Judged(INCONCLUSIVE, "-")
        found = {way: Found(**each) for way, each in modelled["least"].items()}
        sure, missed = (lambda one: one.low > 1 + ERROR), (lambda one: one.high < 1 - ERROR)
        each = found.values()
        verdict = REPRODUCED if all(map(sure, each)) else DIFFERS if all(map(missed, each)) else INCONCLUSIVE
        verdict = SHAPE if verdict == DIFFERS and any(map(sure, each)) else verdict
        text = ", ".join(f"{way} {one.words()}" for way, one in found.items())
        return Judged(verdict, f"least ratio by {text}")

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw the speed ratio against nodes."""
        rows = {f"{way}, modelled": each for way, each in modelled["ratios"].items()}
        curves(axes, THREADS, rows, WAYS.values(), "--")
        axes.fill_between(THREADS, 1, 30, color="lightgrey", alpha=0.4, label="paper: above 1 in all cases")
        axes.axhline(1, color=PAPER, linewidth=0.8)
        axes.set(xlabel="nodes", ylabel="speed ratio, one node over many", yscale="log", ylim=(0.8, 30))
        plain(axes.yaxis, (1, 2, 5, 10, 20))


FIGURE = OneNode()
