"""swCaffe, figures 8 and 9, section VI.A: the time of each layer of AlexNet and VGG-16 on SW26010 and on a K40m.

A layer takes the longer of its operations and its bytes. On SW26010 a convolution writes its columns first, and its
product reads both factors and writes the result once, by which m must exceed 160 for the peak; on the K40m it reads and
writes its blobs alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import shapes
from figure import MODEL, OTHER, OURS, STATED, Check, Data, Figure, Input, holds
from swcaffe_4 import IMAGES, PASSES, TABLE_2
from swcaffe_8 import PROCESSORS

from scaffe.layers.convolution import Convolution
from scaffe.layers.pooling import Pooling

NETS = {"AlexNet": "alexnet", "VGG-16": "vgg16"}
CHIPS = "SW26010", "K40m"
FIRST = {"AlexNet": ("conv1", "conv2"), "VGG-16": ("conv1_1", "conv1_2")}
FLOAT, LEAST = 4, 160  # bytes; section VI.A: m must be larger
Times = dict[str, tuple[str, float, float]]  # by layer: kind, seconds of an image on SW26010 and on the K40m


def product_seconds(m: float, n: float, k: float, flops: float, memory: float) -> float:
    """Return the seconds of a product that moves each matrix once (section VI.A)."""
    return max(2 * m * n * k / flops, FLOAT * (m * n + n * k + m * k) / memory)


def explicit_seconds(layer: Convolution, passes: int, flops: float, memory: float) -> float:
    """Return the seconds of a convolution's passes by columns over an image; its weights' bytes are a batch's."""
    m, (c, *kernel) = layer.outputs / layer.group, layer.blobs[0].shape[1:]
    k, n = c * kernel[0] * kernel[1], layer.window.out[0] * layer.window.out[1] * IMAGES
    columns = FLOAT * k * n / memory
    return passes * layer.group * (columns + product_seconds(m, n, k, flops, memory)) / IMAGES


def times(model: str) -> Times:
    """Return each layer's kind and seconds, for the kinds of figures 8 and 9."""
    chip, gpu = (PROCESSORS[name] for name in CHIPS)
    works, found = shapes.works(model), {}
    with shapes.built(model, training=True) as net:
        for layer in net.layers:
            work = works[layer.name]
            flops, moved = sum(work.flops), sum(work.moved)
            seconds = [max(flops / peak, moved / memory) for peak, memory in (chip, gpu)]
            if isinstance(layer, Convolution):
                passes = round(flops / work.flops[0])
                found[layer.name] = "convolution", explicit_seconds(layer, passes, *chip), seconds[1]
            elif isinstance(layer, Pooling):
                found[layer.name] = "pooling", seconds[0], seconds[1]
            elif layer.type in ("ReLU", "InnerProduct"):
                found[layer.name] = layer.type, seconds[0], seconds[1]
    return found


class LayerTimes(Figure):
    """Which layers a chip with little memory bandwidth is bad at."""

    id, rank = "swcaffe-9", 24
    slow = True
    title = "Time of layers of AlexNet and VGG-16 on SW26010 and on a K40m"
    source = "swCaffe, figures 8 and 9, section VI.A"
    paper = "the first two convolutions and pooling are slow on SW26010; products need m > 160"
    inputs = (
        *(Input(f"{name}: peak", PROCESSORS[name][0], "operations/s", STATED, "table I") for name in CHIPS),
        *(Input(f"{name}: memory", PROCESSORS[name][1], "bytes/s", STATED, "table I, figure 2") for name in CHIPS),
        Input("least m", LEAST, "rows of a product", STATED, "section VI.A: m / 6 operations for a byte"),
    )
    unexplained = (
        "The figures are bars alone, without a number in the text.",
        "AlexNet has LRN here, BatchNorm in the paper: both are left out.",
        "AlexNet's conv2 is as weak as conv5, and not weaker: both are two groups of products with m = 128. The "
        "paper's net may have no groups, and im2col on its chip is slower than the memory.",
        "In table II the first convolution takes 39 times what its columns' and product's bytes need at 28 GB/s.",
    )

    def model(self, measured: Data) -> Data:
        """Return the seconds of an image by net and layer, and table II's forward rates by channels."""
        forward = [(row.outputs, row.gflops[0]) for row in TABLE_2.values()]
        return {"times": {net: times(model) for net, model in NETS.items()}, "forward": forward}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check that the named layers are the weak ones; the rule of 160 is arithmetic on table II, no evidence."""
        for net, found in modelled["times"].items():
            slow = {name: chip / gpu for name, (kind, chip, gpu) in found.items() if kind == "convolution"}
            first, later = ([v for n, v in slow.items() if (n in FIRST[net]) == named] for named in (True, False))
            yield holds(f"{net}: SW over K40m, first two convolutions above all others", min(first) > max(later))
            pools = [chip / gpu for kind, chip, gpu in found.values() if kind == "pooling"]
            yield holds(f"{net}: SW over K40m, pooling above the later convolutions", min(pools) > max(later))
        few, many = ([rate for m, rate in modelled["forward"] if (m < LEAST) == narrow] for narrow in (True, False))
        what = f"arithmetic on table II, {PASSES[0]}: least GFLOP/s with {LEAST} channels and more over the most below"
        yield Check(what, min(many) / max(few), low=1.0, fitted=True)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return how much slower than the K40m the layers are."""
        texts = []
        for net, found in modelled["times"].items():
            slow = {name: chip / gpu for name, (kind, chip, gpu) in found.items() if kind in ("convolution", "pooling")}
            later = max(v for n, v in slow.items() if n.startswith("conv") and n not in FIRST[net])
            first = " and ".join(f"{slow[name]:.1f}" for name in FIRST[net])
            pool = min(v for n, v in slow.items() if n.startswith("pool"))
            texts.append(f"{net}: first convolutions {first}, later up to {later:.1f}, pooling {pool:.1f}")
        return "", "times of the K40m's: " + "; ".join(texts)

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the milliseconds of each layer, forward and backward, as bars; pooling's names are green."""
        panels = figure.subplots(1, 2, width_ratios=(2, 3))
        for axes, (net, found) in zip(panels, modelled["times"].items(), strict=True):
            named = {name: each for name, each in found.items() if each[0] != "ReLU"}
            for k, (label, colour) in enumerate((("SW26010, modelled", OURS), ("K40m, modelled", MODEL))):
                at = [i + 0.4 * k - 0.2 for i in range(len(named))]
                axes.bar(at, [1e3 * each[1 + k] for each in named.values()], 0.4, color=colour, label=label)
            axes.set(title=net, yscale="log", ylim=(None, 8 * axes.get_ylim()[1]))
            axes.set_xticks(range(len(named)), list(named), rotation=90, fontsize=7)
            for label, each in zip(axes.get_xticklabels(), named.values(), strict=True):
                label.set_color(OTHER if each[0] == "pooling" else "black")
        panels[0].set_ylabel("ms of an image, forward and backward")


FIGURE = LayerTimes()
