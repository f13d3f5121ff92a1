"""swCaffe, table II: VGG-16's convolutions by columns and a matrix product (explicit), and without columns (implicit).

Here both are oneDNN's kernels, im2col and direct. Each layer is timed alone, pass by pass, reorders left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from drawing import OURS, PAPER, plain
from figure import DERIVED, STATED, Data, Figure, Input, M
from google.protobuf import text_format
from verdicts import DIFFERS, REPRODUCED, SHAPE, Judged

import scaffe
from scaffe.compute import FIXED, Compute
from scaffe.files import plan_file
from scaffe.proto import NetParameter
from scaffe.tools.layer_kernels import watch

PASSES = "forward", "weights", "data"  # gradients of the weights, and of the bottom
Pair = tuple[float | None, float | None]


@dataclass(frozen=True)
class Row:
    """A row of table II: channels in and out, side of the images; seconds (implicit, explicit) by pass."""

    inputs: int
    outputs: int
    side: int
    seconds: Sequence[Pair]


TABLE_2 = {
    "1_1": Row(3, 64, 224, ((None, 4.19), (None, 1.10), (None, None))),
    "1_2": Row(64, 64, 224, ((4.30, 7.79), (None, 5.22), (None, 14.97))),
    "2_1": Row(64, 128, 112, ((1.63, 2.45), (None, 1.33), (None, 3.61))),
    "2_2": Row(128, 128, 112, ((2.34, 3.14), (2.26, 2.25), (2.39, 6.11))),
    "3_1": Row(128, 256, 56, ((1.06, 0.73), (0.92, 0.68), (0.95, 1.69))),
    "3_2": Row(256, 256, 56, ((1.79, 1.14), (1.56, 1.29), (1.82, 3.05))),
    "3_3": Row(256, 256, 56, ((1.79, 1.14), (1.56, 1.27), (1.82, 3.03))),
    "4_1": Row(256, 512, 28, ((0.84, 0.69), (0.70, 0.71), (0.85, 0.95))),
    "4_2": Row(512, 512, 28, ((1.68, 1.33), (1.27, 1.33), (1.75, 1.89))),
    "4_3": Row(512, 512, 28, ((1.68, 1.33), (1.27, 1.67), (1.75, 1.87))),
    "5_1": Row(512, 512, 14, ((0.40, 0.62), (0.31, 0.65), (0.43, 0.80))),
    "5_2": Row(512, 512, 14, ((0.40, 0.63), (0.31, 0.78), (0.43, 0.84))),
    "5_3": Row(512, 512, 14, ((0.40, 0.63), (0.31, 0.65), (0.43, 0.84))),
}
IMAGES, BATCH, ROUNDS = 128, 2, 5  # images of table II, images here; rounds
DIRECT, COLUMNS = "direct", "with columns"
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


def by_kernels(net: scaffe.Net) -> list[float]:
    """Return the seconds of the layer's kernels of oneDNN by pass, without reorders."""
    seconds = watch(net, 1)[1].seconds
    return [seconds[f"convolution_{name}"] for name in ("forward", "backward_weights", "backward_data")]


def layer_seconds(row: Row, folder: Path, rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Return the median seconds of each pass by way; the ways take turns."""
    direct = convolution(row, Compute(engine="onednn", plan=FIXED))
    columns = convolution(row, Compute(engine="onednn", plan=plan(direct, "plain", folder)))
    ways = {DIRECT: direct, COLUMNS: columns}
    found = [{name: by_kernels(net) for name, net in ways.items()} for _ in range(rounds + 1)][1:]
    for net in ways.values():
        net.close()
    return {name: [median(each) for each in zip(*(turn[name] for turn in found), strict=True)] for name in ways}


def plan(net: scaffe.Net, way: str, folder: Path) -> str:
    """Write a plan in which all convolutions of a net go one way; return its path."""
    file = folder / f"{way.replace(' ', '-')}-{len(net.layers)}.txt"
    plan_file.write(file, {work: way for works in net.works() for work in works})
    return str(file)


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
    """Return the seconds of a layer's pass without columns over those with them."""
    return ways[DIRECT][k] / ways[COLUMNS][k]


class Convolutions(Figure):
    """Which way wins where."""

    id, tag = "swcaffe-4", M
    inputs = (
        Input("configurations", 32, "of 39", DERIVED, "table II: those that both strategies can compute"),
        Input("batch", IMAGES, "images", STATED, "table II; 2 here"),
    )

    def measure(self) -> Data:
        """Return the seconds of each layer's passes by way."""
        with tempfile.TemporaryDirectory() as folder:
            return {"layers": {name: layer_seconds(row, Path(folder)) for name, row in TABLE_2.items()}}

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge by the number of configurations in which direct kernels are the faster."""
        found = winners(measured)
        direct, paper = counts(found)
        verdict = DIFFERS if direct <= len(found) / 2 else REPRODUCED if direct == paper else SHAPE
        return Judged(verdict, f"{direct} of {len(found)}; the same way wins as in the paper in {same(found)}")

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw the time without columns over that with them, of the three passes side by side."""
        places = list(TABLE_2)
        for k, (name, mark) in enumerate(zip(PASSES, "osv", strict=True)):
            there = [(places.index(layer) + (k - 1) / 5, i / e) for layer, each, i, e in configurations() if each == k]
            axes.plot(*zip(*there, strict=True), mark, color=PAPER, markersize=5, label=f"paper, {name}")
            found = [relative(each, k) for each in measured["layers"].values()]
            axes.plot([i + (k - 1) / 5 for i in range(len(places))], found, mark, color=OURS, markersize=5)
        axes.plot([], [], "o", color=OURS, label="measured, one core")
        axes.axhline(1, color="grey", linewidth=0.8)
        axes.set(yscale="log", ylim=(0.1, 9), xlabel="convolution of VGG-16", ylabel="time without columns / with")
        plain(axes.yaxis, (0.1, 0.2, 0.5, 1, 2, 5))
        axes.set_xticks(range(len(places)), places, fontsize=8)


def counts(found: list[tuple[bool, bool]]) -> tuple[int, int]:
    """Return in how many configurations the way without columns is the faster: here, and in table II."""
    return sum(ours for _, ours in found), sum(paper for paper, _ in found)


def same(found: list[tuple[bool, bool]]) -> int:
    """Return in how many configurations the same way is the faster."""
    return sum(paper == ours for paper, ours in found)


FIGURE = Convolutions()
