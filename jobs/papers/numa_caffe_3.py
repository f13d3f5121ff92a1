"""NUMA-Caffe, tables 3 and 6, sections 1 and 3.2: where bytes lie, and what processes in place of threads cost.

- First touch: the main thread fills all blobs, so that they lie on its package; a solver on each package has its own.
- numactl --interleave: each package has its part of the pages, of which the others need most.
- A process has weights, gradients and history of its own; the blobs of the batch are divided.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import shapes
from drawing import bars
from figure import ASSUMED, DERIVED, MODEL, OURS, PAPER, STATED, Check, Data, Figure, Input, within
from numa_caffe_9 import BOXES, LOADS, UPDATE, Box
from numa_caffe_9 import FIGURE as DOMAINS

TABLE_3, TABLE_6 = (12.598, 0.728, 1.023, 0.653), (3.69, 3.37, 3.80, 3.40)  # GB/s of each package
PROCESSES = (1, 2, 4, 8, 14, 28, 56)


def part(rates: tuple[float, ...], which: int) -> float:
    """Return a package's part of all bytes."""
    return rates[which] / sum(rates)


class Placement(Figure):
    """Bytes by package, interleaved pages, memory of processes."""

    id, rank = "numa-caffe-3", 18
    title = "First touch, interleaved pages, and a process for each core"
    source = "NUMA-Caffe, tables 3 and 6, sections 1 and 3.2"
    paper = "package 0 has 83.98 %, NUMA-Caffe's 24 to 27 % each; interleave 1.4x (SB), 1.6x (AMD) slower; 6.3x memory"
    inputs = (
        Input("package 0, Intel", 100 * part(TABLE_3, 0), "%", STATED, "table 3"),
        Input("interleave, SB", 1.4, "times NUMA-Caffe's time", STATED, "section 3.2, GoogLeNet"),
        Input("interleave, AMD", 1.6, "times NUMA-Caffe's time", STATED, "section 3.2, GoogLeNet"),
        Input("memory, 56 processes over 1", 6.3, "", STATED, "section 1, AlexNet on BW, by smem"),
        Input("copies of the weights", 3, "", DERIVED, "Caffe: weights, gradients, history"),
        Input(
            "AlexNet: blobs",
            2 * 5_653_396,
            "bytes of an image",
            DERIVED,
            "tops and their gradients",
        ),
        Input("batch", 256, "images", STATED, "section 3"),
        Input("columns", 1.4e6, "bytes of a process", ASSUMED, "im2col's buffer of the largest convolution"),
    )
    unexplained = (
        "Table 3's 16 % outside package 0 are buffers that threads touch first; their sizes are not given.",
        "Whether private memory has gradients of blobs, and code and libraries of 56 processes, is not said.",
        "Interleaving keeps latency: three of four lines come from another node. A roofline has bandwidth alone.",
    )

    def interleaved(self, name: str) -> float:
        """Return Intel-Caffe's time with interleaved pages over NUMA-Caffe's, on all nodes, GoogLeNet."""
        box, load = BOXES[name], LOADS["GoogLeNet"]
        products = load.images * load.flops / (box.nodes * box.flops * DOMAINS.value("efficiency"))
        moved = load.images * load.moved + UPDATE * load.weights
        return (products + _spread(moved, box)) / DOMAINS.seconds("NUMA", load, box, box.nodes)

    def memory(self, processes: int) -> float:
        """Return the bytes of AlexNet's training in so many processes."""
        own = self.value("copies of the weights") * shapes.parameters("alexnet") + self.value("columns")
        return processes * own + self.value("batch") * self.value("AlexNet: blobs")

    def model(self, measured: Data) -> Data:
        """Return the part of each package, slowdowns by interleaving, and memory by processes."""
        return {
            "package": 100 / BOXES["SB"].nodes,
            "interleave": {name: self.interleaved(name) for name in ("SB", "AMD")},
            "memory": [self.memory(p) / self.memory(1) for p in PROCESSES],
        }

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check each claim within 20 %."""
        yield within("table 3: package 0's part by first touch, %", 100.0, self.value("package 0, Intel"), 0.2)
        for which in range(len(TABLE_6)):
            found = 100 * part(TABLE_6, which)
            yield within(
                f"table 6: package {which}'s part against the model's quarter, %", modelled["package"], found, 0.2
            )
        for name, found in modelled["interleave"].items():
            yield within(
                f"GoogLeNet, {name}: interleaved pages, slowdown", found, self.value(f"interleave, {name}"), 0.2
            )
        what = "memory, 56 processes over 1"
        yield within(f"AlexNet: {what}", modelled["memory"][-1], self.value(what), 0.2)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the slowdowns and the memory."""
        slow = ", ".join(f"{name} {found:.2f}x" for name, found in modelled["interleave"].items())
        return "", f"package 0 100 %, then 25 % each; interleave {slow}; memory {modelled['memory'][-1]:.1f}x"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the packages' parts, and memory against processes."""
        left, right = figure.subplots(1, 2)
        intel, numa = ([100 * part(rates, i) for i in range(4)] for rates in (TABLE_3, TABLE_6))
        model = 4 * [modelled["package"]]
        rows = [("Intel, paper", intel, PAPER), ("Intel, model", (100, 0, 0, 0), MODEL)]
        bars(left, [*rows, ("NUMA, paper", numa, "grey"), ("NUMA, model", model, OURS)])
        left.set(xlabel="package", ylabel="part of all bytes, %", title="Tables 3 and 6", xticks=range(4))
        right.plot(PROCESSES, modelled["memory"], "o--", color=OURS, label="modelled")
        right.plot([56], [self.value("memory, 56 processes over 1")], "s", color=PAPER, label="paper: 6.3")
        right.set(xlabel="processes", ylabel="private memory over one process's", title="AlexNet", ylim=(0, None))


def _spread(moved: float, box: Box) -> float:
    """Return the seconds of bytes that lie on all nodes in equal parts, each needed by all nodes."""
    of_one = moved / box.nodes
    return max(of_one / box.memory, of_one * (box.nodes - 1) / box.nodes / box.link)


FIGURE = Placement()
