"""S-Caffe, figure 9: Caffe's quick net for CIFAR-10 on 64 GPUs, strong scaling, by closed forms.

An iteration on cluster A is the computing of a share of the batch, the broadcast and the reduce.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from drawing import MODEL, of_paper
from figure import ASSUMED, DERIVED, STATED, Data, Figure, Input, S
from s_caffe_10 import K40M
from verdicts import DIFFERS, REPRODUCED, Found, Judged, compared

from collectives.model import tuned_row
from collectives.model.clusters import KESCH

QUICK, COUNTS = 145_578, (1, 2, 4, 8, 16, 32, 64)  # elements, GPUs
TREES, ERROR = ("binomial", "chain", "cb-8"), 0.1


class Cifar(Figure):
    """Strong scaling of a net with few parameters."""

    id, tag = "s-caffe-9", S
    inputs = (
        Input("64 over 1", 32, "times", STATED, "section 6.3"),
        Input("batch", 8192, "images", STATED, "section 6.3"),
        K40M,
        Input("AlexNet", 4.14e9, "operations of an image", DERIVED, "from the layers' shapes, forward and backward"),
        Input("CIFAR-10", 69.2e6, "operations of an image", DERIVED, "from the layers' shapes, forward and backward"),
        Input("alpha", KESCH.alpha, "s", ASSUMED, "a kernel start and a rendezvous", KESCH.alpha / 2, 5 * KESCH.alpha),
        Input("error", ERROR, "of an iteration", DERIVED, "docs/simulate.md: closed forms, nothing hidden"),
    )

    def seconds(self, ranks: int) -> float:
        """Return the seconds of an iteration on cluster A, whose batch is divided."""
        rate = self.value("a device") * self.value("AlexNet")
        links = replace(KESCH, alpha=self.value("alpha"))
        rows = (tuned_row(verb, links, ranks, QUICK, algorithms=TREES) for verb in ("bcast", "reduce") if ranks > 1)
        return self.value("batch") * self.value("CIFAR-10") / rate / ranks + sum(row.seconds for row in rows)

    def model(self, measured: Data) -> Data:
        """Return the speedups by number of GPUs, and the range on 64."""
        last = self.spread(lambda: self.seconds(1) / self.seconds(COUNTS[-1]))
        return {"speedups": [self.seconds(1) / self.seconds(n) for n in COUNTS], "64": vars(last)}

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge the speedup; more than the paper's is the model's miss, since it has the paper's own design."""
        found = Found(**modelled["64"])
        verdict = compared(found.value, self.value("64 over 1"), ERROR)
        return Judged(verdict if verdict == REPRODUCED else DIFFERS, f"{found.words()} times")

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw speedups against GPUs."""
        axes.loglog(COUNTS, modelled["speedups"], "o--", color=MODEL, label="modelled, a device's rate assumed")
        axes.plot(COUNTS, COUNTS, ":", color="grey", label="linear")
        of_paper(axes, [64], [self.value("64 over 1")], "32 on 64")
        axes.set(xlabel="GPUs", ylabel="speedup over one GPU", title="Cluster A, batch 8,192")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(COUNTS, list(map(str, COUNTS)))


FIGURE = Cifar()
