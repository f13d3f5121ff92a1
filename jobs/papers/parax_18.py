"""ParaX, figure 18: the memory of n instances, counted from the nets' shapes.

Blobs of an image, which training keeps for the backward pass, gradients of each instance, weights of each NUMA node.
"""

from __future__ import annotations

from typing import Any

import shapes
from drawing import MODEL, OURS, PAPER, curves
from figure import ASSUMED, DERIVED, STATED, Data, Figure, Input, S
from verdicts import DIFFERS, INCONCLUSIVE, REPRODUCED, Found, Judged

NETS, GB = {"ResNet-50": "resnet50", "MobileNet-v1": "mobilenet"}, 1e9
TOTALS = tuple(64 * n for n in (1, 4, 14, 28, 56))


class Memory(Figure):
    """How many images fit."""

    id, tag = "parax-18", S
    inputs = (
        Input("memory", 192, "GB", STATED, "section 5"),
        Input(
            "ResNet-50: blobs", shapes.activations("resnet50"), "bytes of an image", DERIVED, "tops that are not views"
        ),
        Input("domains", 2, "", STATED, "section 5: weights of each"),
        Input(
            "gradients of blobs",
            0.0,
            "of the blobs' bytes",
            ASSUMED,
            "freed, or in blobs that are done with",
            None,
            0.1,
        ),
    )

    def gigabytes(self, name: str, instances: int, images: int) -> float:
        """Return the GB of training: each instance has gradients of its own, each domain the weights."""
        own = images * shapes.activations(name) * (1 + self.value("gradients of blobs"))
        return (own + (instances + self.value("domains")) * shapes.parameters(name)) / GB

    def model(self, measured: Data) -> Data:
        """Return the GB by net and number of images, and the ranges of the two sizes in question."""
        sizes = {net: [self.gigabytes(name, n // 64, n) for n in TOTALS] for net, name in NETS.items()}
        both = {str(n): vars(self.spread(lambda n=n: self.gigabytes("resnet50", 56, n))) for n in (3584, 1792)}
        return {"GB": sizes, **both}

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge whether the larger size exceeds the memory, and the smaller one does not."""
        large, small = (Found(**modelled[name]) for name in ("3584", "1792"))
        limit = self.value("memory")
        sure = large.low > limit > small.high
        verdict = REPRODUCED if sure else DIFFERS if large.high < limit or small.low > limit else INCONCLUSIVE
        return Judged(verdict, f"{large.words()} and {small.words()} GB, counted")

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw gigabytes against the total batch."""
        curves(axes, TOTALS, modelled["GB"], (OURS, MODEL), label="{}, counted")
        axes.plot(
            [1792], [modelled["1792"]["value"]], "o", color=OURS, markerfacecolor="white", label="ResNet-50, 56 of 32"
        )
        axes.axhline(
            self.value("memory"), color=PAPER, linestyle="--", label="paper: 192 GB, exceeded by 3,584 of ResNet-50"
        )
        axes.set(
            xscale="log", yscale="log", xlabel="images of all instances", ylabel="GB", ylim=(1, 3000), title="Training"
        )
        axes.set_xticks(TOTALS, list(map(str, TOTALS)))
        axes.minorticks_off()


FIGURE = Memory()
