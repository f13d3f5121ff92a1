"""ParaX, figures 18 and 19: the memory of n instances, and their throughput.

Memory is counted from the nets' shapes: blobs of an image, which training keeps for the backward pass, gradients of
each instance, weights of each NUMA node. Here processes with n instances are measured. What further instances add is
compared with a count that has what scaffe keeps besides. Throughput is parax-13's simulation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import shapes
from drawing import curves
from figure import ASSUMED, DERIVED, MODEL, OTHER, OURS, PAPER, STATED, Check, Data, Figure, Input, within
from parax_13 import FIGURE as INSTANCES
from parax_13 import rate

GB = 1e9
NETS = {"ResNet-50": "resnet50", "MobileNet-v1": "mobilenet"}
TOTALS = tuple(64 * n for n in (1, 4, 14, 28, 56))
COUNTS, IMAGES, HERE = (1, 2, 4, 8), 4, "mobilenet"  # what is measured: instances, images of each
MIB = 2**20
RATES = "core rate", "core bandwidth", "bandwidth", "barrier", "jitter"  # of parax-13, of which two are fitted
TRAINED, INFERRED = (1, 14, 56), (1, 16, 64)  # figure 18: instances of 64; figure 19: images of each of 56


def footprint(name: str, instances: int, images: int, domains: int = 2) -> float:
    """Return the bytes of training: each instance has gradients of its own, each domain the weights."""
    return images * shapes.activations(name) + (instances + domains) * shapes.parameters(name)


def here(instances: int) -> float:
    """Return the bytes of a process of scaffe that trains, but for the interpreter and libraries.

    Weights, momentum and the weights in the engine's layout, of which instances share a second one, of the backward
    products; of each instance gradients, blobs, and the buffers in which gradients take turns.
    """
    layouts = 1 if instances == 1 else 2
    own = shapes.parameters(HERE) + IMAGES * shapes.activations(HERE) + shapes.pooled(HERE, IMAGES)
    return (2 + layouts) * shapes.parameters(HERE) + instances * own


def resident(instances: int) -> float:
    """Return the bytes of this machine's memory that a process with so many instances takes after some iterations."""
    from turns import Turns, Way

    way = Way("one", HERE, IMAGES * instances, instances=instances, gather="server")
    with Turns([way], {}) as turns:
        turns.all["one"].ask("step", 2)
        return MIB * turns.all["one"].memory()[0]


def over_batch(net: str) -> Data:
    """Return images per second by instances of 64 images in training, and by images of each of 56 in inference."""
    return {
        "training": [rate(net, False, 56, 56 // n, 64) for n in TRAINED],
        "inference": [rate(net, True, 56, 1, 56 * images) for images in INFERRED],
    }


class Memory(Figure):
    """How many images fit."""

    id, rank = "parax-18", 16
    slow = True
    title = "Memory and throughput of n instances with 64 images each"
    source = "ParaX, figures 18 and 19, section 5.3"
    paper = (
        "192 GB: ResNet-50 1,792 images, not 3,584; MobileNet-v1's fit; at most 448 on a P100; throughput is flat past "
    )
    paper += "64 x 14 in training, 16 x 56 in inference"
    inputs = (
        Input("memory", 192, "GB", STATED, "section 5"),
        Input("GPU memory", 16, "GB", STATED, "section 5.3, P100"),
        Input("GPU images", 448, "", STATED, "section 5.3, of ResNet-50 and MobileNet-v1"),
        Input("ResNet-50: blobs", 65_843_112, "bytes of an image", DERIVED, "shapes: tops that are not views"),
        Input("MobileNet-v1: blobs", 40_951_720, "bytes of an image", DERIVED, "shapes: tops that are not views"),
        Input("domains", 2, "", STATED, "section 5: weights of each"),
        Input("gradients of blobs", 0, "bytes", ASSUMED, "freed, or in the memory of blobs that are done with"),
        Input("gradients here", 48_637_184, "bytes of an instance", DERIVED, "shapes: buffers that they take in turn"),
        Input("slowly", 1.1, "gain", ASSUMED, "section 5.3: 'slowly', 'marginal', without a number"),
        *(one for one in INSTANCES.inputs if one.name in RATES),
    )
    unexplained = (
        "The labels on the bars of figures 18 and 19 are not in the text.",
        "448 images of ResNet-50 are 36 MB each on a P100: less than its convolutions' tops alone. Whether they are of "
        "training, with blobs recomputed or in 16 bits, the text does not say.",
        "scaffe's gradients take turns in buffers, of which one serves from a quarter of its size on: for MobileNet-v1 "
        "they are twice the gradients of the largest layer, which an earlier count had. With several instances the "
        "engine keeps the weights in two layouts for all of them; with one, a copy in one layout.",
        "The count has no interpreter, no libraries and no heap of a thread, nor the signs that a ReLU keeps. What "
        "further instances add is compared, so that what a process has once hides no error.",
        "In inference the model's rate falls with small batches by the weights' bytes alone; products of few rows are "
        "slow too.",
    )

    def measure(self) -> Data:
        """Return the megabytes of processes that train with 1, 2, 4 and 8 instances."""
        return {"MB": [resident(n) / 1e6 for n in COUNTS]}

    def model(self, measured: Data) -> Data:
        """Return the gigabytes by net and number of images, the images that fit a P100, and the images per second.

        "MB" are counted here, "libraries" what the process with one instance has beyond its count.
        """
        sizes = {net: [footprint(name, n // 64, n) / GB for n in TOTALS] for net, name in NETS.items()}
        half = footprint(NETS["ResNet-50"], 56, 1792) / GB
        room = GB * self.value("GPU memory")
        fit = {net: (room - footprint(name, 1, 0, 1)) / shapes.activations(name) for net, name in NETS.items()}
        counted = [here(n) / 1e6 for n in COUNTS]
        libraries = measured["MB"][0] - counted[0] if measured else 0.0
        rates = {net: over_batch(net) for net in NETS}
        return {"GB": sizes, "1792": half, "fit": fit, "MB": counted, "libraries": libraries, "rates": rates}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check what fits 192 GB and 16 GB, what instances add here, and that throughput hardly gains at the end."""
        memory = self.value("memory")
        yield Check("ResNet-50, 3,584 images, GB", modelled["GB"]["ResNet-50"][-1], low=memory)
        yield Check("ResNet-50, 1,792 images on 56 instances, GB", modelled["1792"], high=memory)
        yield Check("MobileNet-v1, 3,584 images, GB", modelled["GB"]["MobileNet-v1"][-1], high=memory)
        for net, found in modelled["fit"].items():
            yield within(f"{net}: images that fit a P100", found, self.value("GPU images"), 0.2)
        for n, found, counted in zip(COUNTS[1:], _added(measured.get("MB", ())), _added(modelled["MB"]), strict=False):
            what = f"MobileNet-v1 here: MB that {n} instances add to one's, measured over counted"
            yield within(what, found / counted, 1.0, 0.2)
        for net, rates in modelled["rates"].items():
            for phase, where in (("training", "past 64 x 14"), ("inference", "past 16 x 56")):
                _, middle, last = rates[phase]
                yield Check(f"{net}, {phase}: gain {where}", last / middle, high=self.value("slowly"))

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the gigabytes."""
        sizes = ", ".join(f"{net} {each[-1]:.0f}" for net, each in modelled["GB"].items())
        text = ", ".join(f"{n}: {found:.0f}" for n, found in zip(COUNTS, measured.get("MB", ()), strict=False))
        model = f"3,584 images, GB: {sizes}; ResNet-50's 1,792: {modelled['1792']:.0f}; counted here, MB: "
        return f"MB by instances, {text}", model + ", ".join(f"{one:.0f}" for one in modelled["MB"])

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw gigabytes against the total batch, megabytes here, and throughput."""
        axes, ours, rates = figure.subplots(1, 3)
        curves(axes, TOTALS, modelled["GB"], (OURS, MODEL), label="{}, counted")
        axes.axhline(
            self.value("memory"), color=PAPER, linestyle=":", label="paper: 192 GB, ResNet-50's\n3,584 exceed it"
        )
        axes.set(xscale="log", yscale="log", xlabel="total batch", ylabel="GB", title="Training, modelled")
        axes.set_xticks(TOTALS, [f"64x{n // 64}" for n in TOTALS], fontsize=6)
        axes.minorticks_off()
        counted = [modelled["libraries"] + one for one in modelled["MB"]]
        ours.plot(
            COUNTS, counted, "--", color=MODEL, label="counted, added to one's measured" if measured else "counted"
        )
        if measured:
            ours.plot(COUNTS, measured["MB"], "o", color=OURS, label="measured")
        ours.set(xlabel="instances", ylabel="MB", ylim=(0, None), title=f"Here: MobileNet-v1, {IMAGES} images each")
        for (net, each), colour in zip(modelled["rates"].items(), (OURS, OTHER), strict=True):
            rates.plot([64 * n for n in TRAINED], each["training"], "o-", color=colour, label=f"{net}, training")
            rates.plot([56 * n for n in INFERRED], each["inference"], "s--", color=colour, label=f"{net}, inference")
        rates.set(
            xscale="log",
            xlabel="total batch",
            ylabel="images/s",
            ylim=(0, None),
            title="56 cores, modelled;\na core's rates fitted",
        )
        for one in (axes, ours, rates):
            one.legend(frameon=False, fontsize=7)


def _added(sizes: Sequence[float]) -> list[float]:
    """Return what is added to the first size."""
    return [size - sizes[0] for size in sizes[1:]]


FIGURE = Memory()
