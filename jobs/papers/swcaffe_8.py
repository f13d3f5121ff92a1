"""swCaffe, tables I to III, figures 8 and 9: five nets on three processors, by a roofline of each layer.

An image takes, in each layer and pass, the longer of its operations at the peak and of its blobs' bytes at the memory's
rate. A processor can't be faster; the order of the nets must follow. Beside the paper's CPU the nets train on one core
here, with batches that take a second or two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from statistics import median
from typing import Any

import shapes
from conditions import seconds_of
from core_rate import core_rate
from drawing import bars
from figure import MODEL, OTHER, OURS, PAPER, STATED, Check, Data, Figure, Input, NotMeasurable, within
from iteration import build, ours, zoo
from swcaffe_4 import IMAGES, TABLE_2

NETS = {"AlexNet": "alexnet", "VGG-16": "vgg16", "VGG-19": "vgg19", "ResNet-50": "resnet50", "GoogLeNet": "googlenet"}
TABLE_3 = {  # images/s
    "CPU": dict(zip(NETS, (12.01, 1.06, 1.07, 1.99, 4.92), strict=True)),
    "K40m": dict(zip(NETS, (79.25, 13.79, 11.2, 25.45, 66.09), strict=True)),
    "SW26010": dict(zip(NETS, (94.17, 6.21, 5.52, 5.56, 14.97), strict=True)),
}
PROCESSORS = {"CPU": (1.28e12, 68e9), "K40m": (4.29e12, 288e9), "SW26010": (4 * 742.4e9, 4 * 28e9)}  # peak, bytes/s
COLOURS = {"CPU": OTHER, "K40m": MODEL, "SW26010": OURS}
TABLE_1 = {"SW26010": (128e9, 3.02e12), "K40m": (288e9, 4.29e12), "KNL": (475e9, 6.92e12)}  # bytes/s, peak
GROUPS = 4
BATCHES = dict(zip(NETS, (32, 4, 4, 8, 16), strict=True))  # here; 256, 64, 64, 32 and 128 in the paper
ROUNDS = 3
DISPUTED = "VGG-19"  # faster than VGG-16 in the CPU's column


def order(rates: Mapping[str, float]) -> list[str]:
    """Return the nets' names, the fastest first."""
    return sorted(rates, key=lambda net: -rates[net])


def swapped(found: Mapping[str, float], other: Mapping[str, float]) -> list[str]:
    """Return the pairs of nets of which another is the faster one in `other`."""
    pairs = combinations(order(found), 2)
    return [f"{fast} before {slow}" for fast, slow in pairs if other[fast] < other[slow]]


def same_order(what: str, found: Mapping[str, float], other: Mapping[str, float]) -> Check:
    """Return the check that no pair of nets is swapped."""
    pairs = swapped(found, other)
    names = f" ({', '.join(pairs)})" if pairs else ""
    return Check(f"{what}: pairs of nets whose order is reversed{names}", len(pairs), high=0)


def operations(net: str) -> float:
    """Return the operations of an image in training."""
    return sum(sum(work.flops) for work in shapes.works(NETS[net]).values())


def seconds_of_nets() -> dict[str, list[float]]:
    """Return the seconds of each iteration by net, after one that is not timed; the nets take turns. Takes 8 GB."""
    nets = {name: build(zoo(model, BATCHES[name]), "onednn") for name, model in NETS.items()}
    iterations = {name: ours(net) for name, net in nets.items()}
    rounds = [[seconds_of(iteration, 1)[0] for iteration in iterations.values()] for _ in range(ROUNDS + 1)]
    for net in nets.values():
        net.close()
    return dict(zip(nets, map(list, zip(*rounds[1:], strict=True)), strict=True))


class Processors(Figure):
    """What peaks and memory permit, beside what was measured."""

    id, rank = "swcaffe-8", 14
    slow = True
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
        *(
            Input(f"{name}: operations for a byte", ratio, "", STATED, "section III.A, principle 3")
            for name, ratio in (("SW26010", 26.5), ("K40m", 14.90), ("KNL", 14.56))
        ),
        Input("KNL: peak", TABLE_1["KNL"][1], "operations/s", STATED, "table I"),
        Input("KNL: memory", TABLE_1["KNL"][0], "bytes/s", STATED, "table I"),
    )
    unexplained = (
        "The CPU's column swaps one pair against the roofline: VGG-19 (1.07 images/s) before VGG-16 (1.06). VGG-19 is "
        "VGG-16 with three convolutions more, 1.27 times its operations, so it can't be faster; 1 % may be the error "
        "of measuring, but then VGG-16's rate is a quarter too low. On one core here it is VGG-16 that is faster.",
        "SW26010 is slower with ResNet-50 than with VGG-16, which has 4 times the operations. The paper has small "
        "channels as the reason: section IV wants 256 and more; a roofline has no such term.",
        "SW over CPU of VGG-16 is 5.86, not 5.13; ResNet-50's 2.79 lies outside the abstract's 3.04 to 7.84.",
    )

    def measure(self) -> Data:
        """Return the GFLOP/s of a product on one core, and the median seconds of an iteration by net."""
        product = core_rate("float32")
        if product is None:
            raise NotMeasurable("oneDNN is not installed")
        return {
            "product": product.best(),
            "seconds": {net: median(each) for net, each in seconds_of_nets().items()},
        }

    def model(self, measured: Data) -> Data:
        """Return the images per second by processor and net, what table II's convolutions permit, and operations."""
        rates = {
            name: {net: 1 / shapes.roofline(model, *PROCESSORS[name]) for net, model in NETS.items()}
            for name in PROCESSORS
        }
        seconds = sum(row.fastest(k) or 0.0 for row in TABLE_2.values() for k in range(3))
        work = {net: operations(net) for net in NETS}
        return {"rates": rates, "convolutions": GROUPS * IMAGES / seconds, "operations": work}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check the roofline as a bound and the order of the nets; tables I and II are arithmetic, no evidence."""
        for name, peak, rate in (("SW26010", 742.4e9, 28e9), *((n, *TABLE_1[n][::-1]) for n in ("K40m", "KNL"))):
            stated = self.value(f"{name}: operations for a byte")
            what = f"arithmetic on table I: operations for a byte, {name}"
            yield within(what, peak / rate, stated, 0.01, fitted=True)
        for name, found in TABLE_3.items():
            part = max(found[net] / modelled["rates"][name][net] for net in NETS)
            yield Check(f"table III: {name}, largest part of the roofline", part, high=1.0)
            yield same_order(f"table III: {name}", found, modelled["rates"][name])
        what = "arithmetic on table II: VGG-16's convolutions alone, images/s of a node (table III: 6.21 of all)"
        yield Check(what, modelled["convolutions"], TABLE_3["SW26010"]["VGG-16"], fitted=True)
        if measured:
            rates, paper = images(measured), TABLE_3["CPU"]
            yield same_order("one core here, against table III's CPU", paper, rates)
            more = modelled["operations"]["VGG-19"] / modelled["operations"]["VGG-16"]
            found = rates["VGG-16"] / rates["VGG-19"]
            yield within("one core here: VGG-16 over VGG-19, as their operations", found, more, 0.2)
            yield Check("one core here: largest share of its sgemm", max(parts(measured, modelled).values()), high=1.0)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the images per second of a core and their part of its products, and the part of the roofline."""
        most = {name: max(TABLE_3[name][net] / one[net] for net in NETS) for name, one in modelled["rates"].items()}
        text = ", ".join(f"{name} {part:.0%}" for name, part in most.items())
        model = f"at most {text} of the roofline; VGG-16's convolutions {modelled['convolutions']:.1f} images/s"
        if not measured:
            return "", model
        rates, shares = images(measured), parts(measured, modelled)
        each = ", ".join(f"{net} {rates[net]:.3g} ({shares[net]:.0%})" for net in NETS)
        rest = [{net: rate for net, rate in one.items() if net != DISPUTED} for one in (TABLE_3["CPU"], rates)]
        order_of = f"{len(swapped(*rest))} pairs of nets whose order the paper's CPU reverses, without {DISPUTED}"
        return f"images/s of one core (share of its sgemm rate): {each}; {order_of}", model

    def table(self, measured: Data, modelled: Data) -> Iterable[str]:
        """Return the CPU's column beside one core here: images per second, and the part of the peak or of sgemm."""
        if not measured:
            return
        rates, shares, work = images(measured), parts(measured, modelled), modelled["operations"]
        peak = PROCESSORS["CPU"][0]
        product = f"{measured['product']:.0f} GFLOP/s"
        yield f"One core here does {product} in a product; batches are smaller than the paper's.\n"
        yield "| net | GFLOP of an image | table III, 12 cores | of their peak | one core here, images/s | of sgemm |"
        yield "|---" * 6 + "|"
        for net, rate in TABLE_3["CPU"].items():
            here = f"{rates[net]:.3g} (batch {BATCHES[net]}) | {shares[net]:.0%}"
            yield f"| {net} | {1e-9 * work[net]:.3g} | {rate} | {rate * work[net] / peak:.1%} | {here} |"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the paper's images per second beside the roofline's, and one core's beside the CPU's."""
        for axes, name in zip(figure.subplots(1, 3), PROCESSORS, strict=True):
            rates = modelled["rates"][name].values()
            rows = [("paper, table III", TABLE_3[name].values(), PAPER), ("roofline", rates, COLOURS[name])]
            if measured and name == "CPU":
                rows.append(("one core here, measured", images(measured).values(), OURS))
            bars(axes, rows)
            axes.set_xticks(
                range(len(NETS)), [net.replace("-", "\n").replace("LeNet", "\nLeNet") for net in NETS], fontsize=7
            )
            axes.set(title=name, yscale="log", ylim=(None, 20 * axes.get_ylim()[1]))
        figure.axes[0].set_ylabel("images/s")


def images(measured: Data) -> dict[str, float]:
    """Return the measured images per second by net."""
    return {net: BATCHES[net] / measured["seconds"][net] for net in NETS}


def parts(measured: Data, modelled: Data) -> dict[str, float]:
    """Return the part of the core's product rate that each net's iteration reaches."""
    peak = 1e9 * measured["product"]
    return {net: rate * modelled["operations"][net] / peak for net, rate in images(measured).items()}


FIGURE = Processors()
