"""swCaffe, tables I to III, figures 8 and 9: five nets on three processors, by a roofline of each layer.

An image takes, in each layer and pass, the longer of its operations at the peak and of its blobs' bytes at the memory's
rate. A processor can't be faster; the order of the nets must follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import shapes
from drawing import bars
from figure import MODEL, OTHER, OURS, PAPER, STATED, Check, Data, Figure, Input, holds, within

NETS = {"AlexNet": "alexnet", "VGG-16": "vgg16", "VGG-19": "vgg19", "ResNet-50": "resnet50", "GoogLeNet": "googlenet"}
TABLE_3 = {  # images/s
    "CPU": dict(zip(NETS, (12.01, 1.06, 1.07, 1.99, 4.92), strict=True)),
    "K40m": dict(zip(NETS, (79.25, 13.79, 11.2, 25.45, 66.09), strict=True)),
    "SW26010": dict(zip(NETS, (94.17, 6.21, 5.52, 5.56, 14.97), strict=True)),
}
PROCESSORS = {"CPU": (1.28e12, 68e9), "K40m": (4.29e12, 288e9), "SW26010": (4 * 742.4e9, 4 * 28e9)}  # peak, bytes/s
COLOURS = {"CPU": OTHER, "K40m": MODEL, "SW26010": OURS}
TABLE_2 = (  # VGG-16's convolutions, s of 128 images on a core group: the faster of implicit and explicit GEMM
    *((4.19, 1.10, 0.0), (4.30, 5.22, 14.97), (1.63, 1.33, 3.61), (2.34, 2.25, 2.39), (0.73, 0.68, 0.95)),
    *((1.14, 1.29, 1.82), (1.14, 1.27, 1.82), (0.69, 0.70, 0.85), (1.33, 1.27, 1.75), (1.33, 1.27, 1.75)),
    *((0.40, 0.31, 0.43), (0.40, 0.31, 0.43), (0.40, 0.31, 0.43)),
)
GROUPS, BATCH = 4, 128


def order(rates: dict[str, float]) -> str:
    """Return the nets' names, the fastest first."""
    return ", ".join(sorted(rates, key=lambda net: -rates[net]))


class Processors(Figure):
    """What peaks and memory permit, beside what was measured."""

    id, rank = "swcaffe-8", 14
    title = "Five nets on three processors, against a roofline of each layer"
    source = "swCaffe, tables I to III, figures 8 and 9, sections III.A and VI.B"
    paper = "images/s of AlexNet: CPU 12, K40m 79, SW26010 94; of VGG-16: 1.1, 14, 6.2"
    inputs = (
        *(
            Input(f"{name}: peak", peak, "operations/s", STATED, "table I, section VI")
            for name, (peak, _) in PROCESSORS.items()
        ),
        *(
            Input(f"{name}: memory", rate, "bytes/s", STATED, "table I, section III.A")
            for name, (_, rate) in PROCESSORS.items()
        ),
        Input("SW26010: operations for a byte", 26.5, "", STATED, "section III.A, principle 3"),
    )
    unexplained = (
        "The CPU is faster with VGG-19 (1.07) than with VGG-16 (1.06), which has fewer operations.",
        "SW26010 is slower with ResNet-50 than with VGG-16, which has 4 times the operations. The paper has small "
        "channels as the reason: section IV wants 256 and more; a roofline has no such term.",
        "SW over CPU of VGG-16 is 5.86, not 5.13; ResNet-50's 2.79 lies outside the abstract's 3.04 to 7.84.",
        "Table II has 13 convolutions, the text 12.",
    )

    def model(self, measured: Data) -> Data:
        """Return the images per second by processor and net, and what table II's convolutions alone permit."""
        rates = {
            name: {net: 1 / shapes.roofline(model, *PROCESSORS[name]) for net, model in NETS.items()}
            for name in PROCESSORS
        }
        return {"rates": rates, "convolutions": GROUPS * BATCH / sum(map(sum, TABLE_2))}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check table I's ratio, the roofline as a bound, the order of the nets, and table II against table III."""
        peak, rate = PROCESSORS["SW26010"]
        yield within(
            "table I: operations for a byte, SW26010", peak / rate, self.value("SW26010: operations for a byte"), 0.01
        )
        for name, found in TABLE_3.items():
            part = max(found[net] / modelled["rates"][name][net] for net in NETS)
            yield Check(f"table III: {name}, largest part of the roofline", part, high=1.0)
            same = order(found) == order(modelled["rates"][name])
            yield holds(f"table III: {name}, order of the nets ({order(found)})", same)
        what = "table II: VGG-16's convolutions alone, images/s of a node (table III: 6.21 of all)"
        yield Check(what, modelled["convolutions"], TABLE_3["SW26010"]["VGG-16"])

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the order of the nets, and the largest part of the roofline."""
        parts = {name: max(TABLE_3[name][net] / one[net] for net in NETS) for name, one in modelled["rates"].items()}
        text = ", ".join(f"{name} {part:.0%}" for name, part in parts.items())
        return "", f"at most {text} of the roofline; VGG-16's convolutions {modelled['convolutions']:.1f} images/s"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the paper's images per second beside the roofline's."""
        for axes, name in zip(figure.subplots(1, 3), PROCESSORS, strict=True):
            rates = modelled["rates"][name].values()
            bars(axes, [("paper, table III", TABLE_3[name].values(), PAPER), ("roofline", rates, COLOURS[name])])
            axes.set_xticks(
                range(len(NETS)), [net.replace("-", "\n").replace("LeNet", "\nLeNet") for net in NETS], fontsize=7
            )
            axes.set(title=name, yscale="log")
        figure.axes[0].set_ylabel("images/s")


FIGURE = Processors()
