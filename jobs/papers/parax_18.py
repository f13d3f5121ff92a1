"""ParaX, figures 18 and 19: the memory of n instances.

Counted from the nets' shapes: blobs of an image, which training keeps for the backward pass, gradients of each
instance, weights of each NUMA node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import shapes
from drawing import curves
from figure import ASSUMED, DERIVED, MODEL, OURS, PAPER, STATED, Check, Data, Figure, Input, within

GB = 1e9
NETS = {"ResNet-50": "resnet50", "MobileNet-v1": "mobilenet"}
TOTALS = tuple(64 * n for n in (1, 4, 14, 28, 56))


def footprint(name: str, instances: int, images: int, domains: int = 2) -> float:
    """Return the bytes of training: each instance has gradients of its own, each domain the weights."""
    return images * shapes.activations(name) + (instances + domains) * shapes.parameters(name)


class Memory(Figure):
    """How many images fit."""

    id, rank = "parax-18", 16
    title = "Memory of n instances with 64 images each"
    source = "ParaX, figures 18 and 19, section 5.3"
    paper = "192 GB: ResNet-50 1,792 images, not 3,584; MobileNet-v1's fit; at most 448 on a P100"
    inputs = (
        Input("memory", 192, "GB", STATED, "section 5"),
        Input("GPU memory", 16, "GB", STATED, "section 5.3, P100"),
        Input("GPU images", 448, "", STATED, "section 5.3, of ResNet-50 and MobileNet-v1"),
        Input("ResNet-50: blobs", 65_843_112, "bytes of an image", DERIVED, "shapes: tops that are not views"),
        Input("MobileNet-v1: blobs", 40_951_720, "bytes of an image", DERIVED, "shapes: tops that are not views"),
        Input("domains", 2, "", STATED, "section 5: weights of each"),
        Input("gradients of blobs", 0, "bytes", ASSUMED, "freed, or in the memory of blobs that are done with"),
    )
    unexplained = (
        "The labels on the bars of figures 18 and 19 are not in the text.",
        "448 images of ResNet-50 are 36 MB each on a P100: less than its convolutions' tops alone. Whether they are of "
        "training, with blobs recomputed or in 16 bits, the text does not say.",
        "scaffe keeps gradients of blobs too, so that its memory is more than the count.",
    )

    def model(self, measured: Data) -> Data:
        """Return the gigabytes by net and number of images, and the images that fit a P100."""
        sizes = {net: [footprint(name, n // 64, n) / GB for n in TOTALS] for net, name in NETS.items()}
        half = footprint(NETS["ResNet-50"], 56, 1792) / GB
        room = GB * self.value("GPU memory")
        fit = {net: (room - footprint(name, 1, 0, 1)) / shapes.activations(name) for net, name in NETS.items()}
        return {"GB": sizes, "1792": half, "fit": fit}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check what fits 192 GB and 16 GB."""
        memory = self.value("memory")
        yield Check("ResNet-50, 3,584 images, GB", modelled["GB"]["ResNet-50"][-1], low=memory)
        yield Check("ResNet-50, 1,792 images on 56 instances, GB", modelled["1792"], high=memory)
        yield Check("MobileNet-v1, 3,584 images, GB", modelled["GB"]["MobileNet-v1"][-1], high=memory)
        for net, found in modelled["fit"].items():
            yield within(f"{net}: images that fit a P100", found, self.value("GPU images"), 0.2)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the gigabytes."""
        sizes = ", ".join(f"{net} {each[-1]:.0f}" for net, each in modelled["GB"].items())
        return "", f"3,584 images, GB: {sizes}; ResNet-50's 1,792: {modelled['1792']:.0f}"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw gigabytes against the total batch."""
        axes = figure.subplots()
        curves(axes, TOTALS, modelled["GB"], (OURS, MODEL), label="{}, counted")
        axes.axhline(
            self.value("memory"), color=PAPER, linestyle=":", label="paper: 192 GB, ResNet-50's 3,584 exceed it"
        )
        axes.set(xscale="log", yscale="log")
        axes.set_xticks(TOTALS, [f"64 x {n // 64}" for n in TOTALS])
        axes.minorticks_off()
        axes.set(xlabel="total batch", ylabel="GB", title="Modelled: training")
        axes.legend(frameon=False)


FIGURE = Memory()
