"""swCaffe, figures 8 and 9, section VI.A: convolutions of AlexNet and VGG-16 on SW26010 and on a K40m.

On SW26010 a convolution writes its columns first, and its product reads both factors and writes the result once; on the
K40m it takes the longer of its operations and of its blobs' bytes.
"""

from __future__ import annotations

from typing import Any

import shapes
from drawing import MODEL, PAPER
from figure import STATED, Data, Figure, Input, S
from swcaffe_4 import IMAGES
from swcaffe_8 import K40M, PROCESSORS
from verdicts import DIFFERS, REPRODUCED, SHAPE, Judged

from scaffe.layers.convolution import Convolution

NETS = {"AlexNet": "alexnet", "VGG-16": "vgg16"}
CHIPS = {"SW26010": PROCESSORS["SW26010"], "K40m": K40M}
FIRST = {"AlexNet": ("conv1", "conv2"), "VGG-16": ("conv1_1", "conv1_2")}
FLOAT = 4  # bytes


def product_seconds(m: float, n: float, k: float, flops: float, memory: float) -> float:
    """Return the seconds of a product that moves each matrix once (section VI.A)."""
    return max(2 * m * n * k / flops, FLOAT * (m * n + n * k + m * k) / memory)


def explicit_seconds(layer: Convolution, passes: int, flops: float, memory: float) -> float:
    """Return the seconds of a convolution's passes by columns over an image; its weights' bytes are a batch's."""
    m, (c, *kernel) = layer.outputs / layer.group, layer.blobs[0].shape[1:]
    k, n = c * kernel[0] * kernel[1], layer.window.out[0] * layer.window.out[1] * IMAGES
    columns = FLOAT * k * n / memory
    return passes * layer.group * (columns + product_seconds(m, n, k, flops, memory)) / IMAGES


def times(model: str) -> dict[str, float]:
    """Return SW26010's time over the K40m's of each convolution, all passes."""
    chip, gpu = CHIPS.values()
    works, found = shapes.works(model), {}
    with shapes.built(model, training=True) as net:
        for layer in net.layers:
            if isinstance(layer, Convolution):
                flops, moved = (sum(each) for each in (works[layer.name].flops, works[layer.name].moved))
                passes = round(flops / works[layer.name].flops[0])
                found[layer.name] = explicit_seconds(layer, passes, *chip) / max(flops / gpu[0], moved / gpu[1])
    return found


class LayerTimes(Figure):
    """Which layers a chip with little memory bandwidth is bad at."""

    id, tag = "swcaffe-9", S
    slow = True
    inputs = tuple(
        Input(f"{name}: {what}", rate, unit, STATED, "table I, figure 2")
        for name, rates in CHIPS.items()
        for what, rate, unit in zip(("peak", "memory"), rates, ("operations/s", "bytes/s"), strict=True)
    )

    def model(self, measured: Data) -> Data:
        """Return by net SW26010's time over the K40m's of each convolution."""
        return {net: times(model) for net, model in NETS.items()}

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge whether the named layers lose most in each net; in shape if one of the two does."""
        holds, texts = [], []
        for net, found in modelled.items():
            first, later = ([v for n, v in found.items() if (n in FIRST[net]) == named] for named in (True, False))
            holds += [one > max(later) for one in first]
            texts.append(f"{net} {' and '.join(f'{one:.1f}' for one in first)}, others at most {max(later):.1f}")
        verdict = REPRODUCED if all(holds) else SHAPE if sum(holds) > len(holds) / 2 else DIFFERS
        return Judged(verdict, f"times of the K40m's: {'; '.join(texts)}")

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw the ratio of each convolution, the named ones apart."""
        names = [(net, layer) for net, found in modelled.items() for layer in found]
        for k, (net, layer) in enumerate(names):
            axes.bar(k, modelled[net][layer], 0.8, color=PAPER if layer in FIRST[net] else MODEL)
        axes.plot([], [], "s", color=PAPER, label="modelled: those that the paper names")
        axes.plot([], [], "s", color=MODEL, label="other convolutions")
        axes.set_xticks(range(len(names)), [layer for _, layer in names], rotation=90, fontsize=7)
        axes.set(ylabel="SW26010's time over the K40m's", ylim=(0, 6), xlabel="AlexNet's 5 convolutions, VGG-16's 13")


FIGURE = LayerTimes()
