"""swCaffe, table II and section IV.B: VGG-16's convolutions by im2col and a matrix product, and directly.

The paper's explicit plan is Caffe's, im2col and a matrix product: here scaffe's reference engine, or oneDNN's kernel.
Its implicit plan multiplies without columns: here oneDNN's direct kernels. Each layer is timed alone, pass by pass,
reorders left out; then the whole net by each plan of scaffe, of which `--plan timed` must choose as well as the best.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from conditions import seconds_of
from figure import ASSUMED, MODEL, OTHER, OURS, PAPER, STATED, Check, Data, Figure, Input
from google.protobuf import text_format
from iteration import build, ours
from narrow import narrowed

import scaffe
from scaffe import models, plan_file
from scaffe.compute import FIXED, TIMED, Compute
from scaffe.proto import NetParameter
from scaffe.tools.layer_kernels import watch

PASSES = "forward", "weights", "data"  # gradients of the weights, and of the bottom
Pair = tuple[float | None, float | None]


@dataclass(frozen=True)
class Row:
    """A row of table II: channels in and out, side of the images; s (implicit, explicit) and GFLOP/s by pass."""

    inputs: int
    outputs: int
    side: int
    seconds: Sequence[Pair]
    gflops: Sequence[float | None]

    @property
    def operations(self) -> float:
        """Return the operations of a pass over an image."""
        return 2.0 * 9 * self.inputs * self.outputs * self.side**2

    @property
    def columns(self) -> float:
        """Return the bytes of an image's columns."""
        return 4.0 * 9 * self.inputs * self.side**2

    def fastest(self, k: int) -> float | None:
        """Return the seconds of the faster plan in pass k; None where there is none."""
        return min((one for one in self.seconds[k] if one is not None), default=None)


TABLE_2 = {
    "1_1": Row(3, 64, 224, ((None, 4.19), (None, 1.10), (None, None)), (5.29, 20.18, None)),
    "1_2": Row(64, 64, 224, ((4.30, 7.79), (None, 5.22), (None, 14.97)), (110.83, 90.49, 31.63)),
    "2_1": Row(64, 128, 112, ((1.63, 2.45), (None, 1.33), (None, 3.61)), (146.68, 176.70, 65.65)),
    "2_2": Row(128, 128, 112, ((2.34, 3.14), (2.26, 2.25), (2.39, 6.11)), (202.52, 209.26, 198.41)),
    "3_1": Row(128, 256, 56, ((1.06, 0.73), (0.92, 0.68), (0.95, 1.69)), (323.10, 351.07, 248.92)),
    "3_2": Row(256, 256, 56, ((1.79, 1.14), (1.56, 1.29), (1.82, 3.05)), (414.62, 369.23, 260.47)),
    "3_3": Row(256, 256, 56, ((1.79, 1.14), (1.56, 1.27), (1.82, 3.03)), (415.97, 376.02, 260.46)),
    "4_1": Row(256, 512, 28, ((0.84, 0.69), (0.70, 0.71), (0.85, 0.95)), (344.42, 336.32, 277.64)),
    "4_2": Row(512, 512, 28, ((1.68, 1.33), (1.27, 1.33), (1.75, 1.89)), (347.36, 372.75, 270.54)),
    "4_3": Row(512, 512, 28, ((1.68, 1.33), (1.27, 1.67), (1.75, 1.87)), (348.50, 372.75, 270.52)),
    "5_1": Row(512, 512, 14, ((0.40, 0.62), (0.31, 0.65), (0.43, 0.80)), (293.58, 376.94, 274.26)),
    "5_2": Row(512, 512, 14, ((0.40, 0.63), (0.31, 0.78), (0.43, 0.84)), (293.58, 376.94, 274.26)),
    "5_3": Row(512, 512, 14, ((0.40, 0.63), (0.31, 0.65), (0.43, 0.84)), (293.59, 377.03, 274.27)),
}
IMAGES, BATCH, ROUNDS, TURNS = 128, 2, 5, 5  # of table II, here; of a layer alone, of the whole net
IM2COL, DIRECT, GEMM = "im2col in numpy", "direct", "im2col in oneDNN"
FILES = "channels last", "plain"  # plans beside the fixed one; plain is oneDNN's im2col
NARROWER = 64  # times fewer outputs of the whole net's fc6 and fc7, which are no convolutions
PEAK, MEMORY = 742.4e9, 28e9  # operations and bytes a second of a core group
LAYER = """
force_backward: true
layer {{ name: "data" type: "Input" top: "data"
  input_param {{ shape {{ dim: {batch} dim: {row.inputs} dim: {row.side} dim: {row.side} }} }} }}
layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param {{
  num_output: {row.outputs} kernel_size: 3 pad: 1 weight_filler {{ type: "xavier" }} }} }}
"""


def convolution(row: Row, compute: Compute, batch: int = BATCH) -> scaffe.Net:
    """Return the net of one layer, which computes its bottom's gradient too."""
    param = text_format.Parse(LAYER.format(row=row, batch=batch), NetParameter())
    return scaffe.Net(param, scaffe.TRAIN, compute=compute)


def by_im2col(net: scaffe.Net) -> list[float]:
    """Return the seconds of the layer's passes in the reference engine."""
    layer, bottom, top = net.layers[1], net.bottoms[1], net.tops[1]
    learned = layer.param_propagate_down
    found = [elapsed(lambda: layer.forward(bottom, top)), elapsed(lambda: layer.backward(top, [False], bottom))]
    layer.param_propagate_down = [False] * len(learned)
    found.append(elapsed(lambda: layer.backward(top, [True], bottom)))
    layer.param_propagate_down = learned
    return found


def by_kernels(net: scaffe.Net) -> list[float]:
    """Return the seconds of the layer's kernels of oneDNN by pass, without reorders."""
    seconds = watch(net, 1)[1].seconds
    return [seconds[f"convolution_{name}"] for name in ("forward", "backward_weights", "backward_data")]


def elapsed(call: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    return seconds_of(call, 1)[0]


def layer_seconds(row: Row, folder: Path, rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Return the median seconds of each pass by way; the ways take turns."""
    direct = convolution(row, Compute(engine="onednn", plan=FIXED))
    ways = {
        IM2COL: (by_im2col, convolution(row, Compute(engine="reference"))),
        DIRECT: (by_kernels, direct),
        GEMM: (by_kernels, convolution(row, Compute(engine="onednn", plan=plan(direct, "plain", folder)))),
    }
    found: dict[str, list[list[float]]] = {name: [] for name in ways}
    for k in range(rounds + 1):
        for name, (measure, net) in ways.items():
            once = measure(net)
            if k:
                found[name].append(once)
    for _, net in ways.values():
        net.close()
    return {name: [median(each) for each in zip(*rows, strict=True)] for name, rows in found.items()}


def plan(net: scaffe.Net, way: str, folder: Path) -> str:
    """Write a plan in which all convolutions of a net go one way; return its path."""
    file = folder / f"{way.replace(' ', '-')}-{len(net.layers)}.txt"
    plan_file.write(file, {work: way for works in net.works() for work in works})
    return str(file)


def whole_net(folder: Path, turns: int = TURNS) -> dict[str, list[float]]:
    """Return the seconds of each iteration of VGG-16 by plan; the plans take turns."""
    param = narrowed(models.get("vgg16").train_val(batch=BATCH, data="input"), 1 / NARROWER, ("fc6", "fc7"))
    nets = {"blocked": build(param, "onednn", FIXED)}
    for way in FILES:
        nets[way] = build(param, "onednn", plan(nets["blocked"], way, folder))
    nets[TIMED] = build(param, "onednn", TIMED)
    iterations = {name: ours(net) for name, net in nets.items()}
    found: dict[str, list[float]] = {name: [] for name in nets}
    for k in range(turns + 1):
        for name, iteration in iterations.items():
            once = elapsed(iteration)
            if k:
                found[name].append(once)
    for net in nets.values():
        net.close()
    return found


def configurations() -> Iterator[tuple[str, int, float, float]]:
    """Yield the layer, pass, and seconds (implicit, explicit) of table II where both plans can be had."""
    for name, row in TABLE_2.items():
        for k, (implicit, explicit) in enumerate(row.seconds):
            if implicit is not None and explicit is not None:
                yield name, k, implicit, explicit


def winners(measured: Data) -> list[tuple[bool, bool]]:
    """Return whether the way without columns is the faster in each configuration: in table II, and here."""
    found = measured["layers"]
    return [(i < e, relative(found[name], k) < 1) for name, k, i, e in configurations()]


def relative(ways: dict[str, list[float]], k: int) -> float:
    """Return the seconds of a layer's pass without columns over those of the faster way with them."""
    return ways[DIRECT][k] / min(ways[IM2COL][k], ways[GEMM][k])


class Convolutions(Figure):
    """Which way wins where, and whether a plan by timing finds it."""

    id, rank = "swcaffe-4", 21
    title = "VGG-16's convolutions with columns and without, and a plan by timing"
    source = "swCaffe, table II, sections IV.B and VI.A"
    paper = "implicit faster in 22 of 32 configurations; explicit in layers 3_1 to 4_3 forward; best 416 GFLOP/s"
    inputs = (
        Input("core group: peak", PEAK, "operations/s", STATED, "section III.A"),
        Input("core group: memory", MEMORY, "bytes/s", STATED, "figure 2"),
        Input("batch", IMAGES, "images", STATED, "table II; 2 here"),
        Input("timed over the best fixed plan", 1.05, "", ASSUMED, "5 % for noise; section VI.A: the best strategy"),
    )
    unexplained = (
        "Explicit wins in table II where images and channels are both large. A CPU's direct kernels multiply blocks of "
        "channels that its caches hold, as fast as a product does, so that columns only add their bytes.",
        "Layer 1_1's columns take 0.05 s at 28 GB/s and its product 0.03 s at the peak, 50 times less than the 4.19 s "
        "of the table: im2col there is far from the memory's rate.",
        "Table II has 13 convolutions, the text 12. Weights' gradients of 4_2 and 4_3, the same shape, take 1.33 and "
        "1.67 s with the explicit plan; their forward passes' GFLOP/s are 2.5 % less than their seconds say.",
    )

    def measure(self) -> Data:
        """Return the seconds of each layer's passes by way, and those of the whole net's iterations by plan."""
        with tempfile.TemporaryDirectory() as folder:
            layers = {name: layer_seconds(row, Path(folder)) for name, row in TABLE_2.items()}
            return {"layers": layers, "plans": whole_net(Path(folder))}

    def model(self, measured: Data) -> Data:
        """Return the least seconds of the explicit plan on a core group by layer: columns written and read, product."""
        peak, memory = self.value("core group: peak"), self.value("core group: memory")
        rows = TABLE_2.items()
        return {"least": {name: IMAGES * max(r.operations / peak, 2 * r.columns / memory) for name, r in rows}}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check which way wins, and the plan by timing; the table's own numbers are arithmetic, no evidence."""
        what = "arithmetic on table II: GFLOP/s by operations over its own, farthest from 1"
        yield Check(what, max(deviations()), high=0.05, fitted=True)
        parts = [modelled["least"][name] / row.seconds[0][1] for name, row in TABLE_2.items()]
        what = "arithmetic on table II: explicit forward, largest part of the roofline"
        yield Check(what, max(parts), high=1.0, fitted=True)
        both = [(i, e) for _, _, i, e in configurations()]
        half = len(both) / 2
        what = f"arithmetic on table II: configurations of {len(both)} in which implicit is faster (text: most)"
        yield Check(what, sum(i < e for i, e in both), low=half, fitted=True)
        if measured:
            found = winners(measured)
            what = f"measured: configurations of {len(both)} in which direct kernels are faster"
            yield Check(what, sum(direct for _, direct in found), low=half)
            what = f"measured: configurations of {len(both)} in which the same way wins as in table II"
            yield Check(what, sum(a == b for a, b in found), low=0.8 * len(both))
            limit = self.value("timed over the best fixed plan")
            what = "measured: plan by timing over the best fixed one, VGG-16's iteration"
            yield Check(what, timed_over_best(measured), high=limit)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return how often each way wins."""
        parts = [modelled["least"][name] / row.seconds[0][1] for name, row in TABLE_2.items()]
        model = f"explicit, forward: {min(parts):.0%} to {max(parts):.0%} of a core group's roofline"
        if not measured:
            return "", model
        found = winners(measured)
        text = f"direct faster in {sum(direct for _, direct in found)} of {len(found)}, the same as the paper's winner "
        text += f"in {sum(a == b for a, b in found)}; plan by timing {timed_over_best(measured):.2f} of the best fixed"
        return text, model

    def table(self, measured: Data, modelled: Data) -> Iterable[str]:
        """Return table II beside ours: implicit over explicit seconds, and direct over im2col."""
        if not measured:
            return
        yield "Time without columns over that with them; in brackets over oneDNN's own im2col.\n"
        yield "| layer | " + " | ".join(f"{name}, table II | measured" for name in PASSES) + " |"
        yield "|---" * 7 + "|"
        for name, row in TABLE_2.items():
            ways = measured["layers"][name]
            cells = []
            for k, (implicit, explicit) in enumerate(row.seconds):
                ours_, gemm = (ways[DIRECT][k] / ways[way][k] for way in (IM2COL, GEMM))
                cells.append(f"{implicit / explicit:.2f}" if implicit and explicit else "-")
                cells.append(f"{ours_:.2f} ({gemm:.2f})")
            yield f"| {name} | " + " | ".join(cells) + " |"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the time without columns over that with them, a panel for each pass."""
        places = range(len(TABLE_2))
        for k, (axes, name) in enumerate(zip(figure.subplots(1, 3, sharey=True), PASSES, strict=True)):
            there = [(list(TABLE_2).index(layer), i / e) for layer, each, i, e in configurations() if each == k]
            axes.plot(*zip(*there, strict=True), "s", color=PAPER, label="table II, implicit / explicit")
            if measured:
                for way, colour, style in ((IM2COL, OURS, "o"), (GEMM, OTHER, "^")):
                    found = [each[DIRECT][k] / each[way][k] for each in measured["layers"].values()]
                    axes.plot(places, found, style, color=colour, label=f"measured, direct / {way}")
            axes.axhline(1, color=MODEL, linewidth=0.8, linestyle=":")
            axes.set(title=name, yscale="log", ylim=(0.1, 12), yticks=(0.1, 0.2, 0.5, 1, 2, 5))
            axes.set_yticklabels(["0.1", "0.2", "0.5", "1", "2", "5"])
            axes.minorticks_off()
            axes.set_xticks(places, list(TABLE_2), rotation=90, fontsize=7)
        figure.axes[0].set_ylabel("time without columns / with columns")
        figure.supxlabel("convolution of VGG-16", fontsize=9)


def deviations() -> Iterator[float]:
    """Yield by how much operations over the faster plan's seconds differ from the table's GFLOP/s."""
    for row in TABLE_2.values():
        for k, gflops in enumerate(row.gflops):
            if gflops is not None:
                yield abs(1e-9 * IMAGES * row.operations / row.fastest(k) / gflops - 1)


def timed_over_best(measured: Data) -> float:
    """Return the median time of the plan by timing over that of the best fixed one."""
    seconds = {name: median(each) for name, each in measured["plans"].items()}
    return seconds.pop(TIMED) / min(seconds.values())


FIGURE = Convolutions()
