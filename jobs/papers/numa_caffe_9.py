"""NUMA-Caffe, figures 9 to 11: scaling over the NUMA nodes of one machine, layer by layer.

The systems differ in who computes and where blobs lie (sections 2.2, 3.1, 3.3 and 4):

- BVLC: one thread unfolds an image and computes all layers without products. A convolution multiplies image by image:
  the threads of all nodes share one small product, meet after each panel of it, and fetch the columns that the one
  thread has just written; the one thread then fetches what they have written.
- Intel: each thread computes images of its own, on all nodes; 84 % of the bytes are on the first node (table 3).
- NUMA: a solver for each node, which is Intel-Caffe on one node; then the first solver adds the others' gradients,
  updates, and they copy its weights.

Loads from the first node take the longer, the more nodes ask for them (table 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil, log2, prod
from typing import Any

from drawing import MODEL, PAPER, bars
from figure import ASSUMED, DERIVED, STATED, Data, Figure, Input, S
from numa_nodes import BATCHES, BOXES, CONVOLUTION, INNER, UPDATE, Box, Part, of_box, of_net, parts, spread
from numa_nodes import weights as weights_of
from verdicts import VERDICTS, Found, Judged, judged

NET, DRAWN = "AlexNet", ("SB", "BW", "AMD", "KNL")
ERROR = 0.2
UP_TO = {"BVLC": 14.0, "Intel": 2.4}


class Domains(Figure):
    """Three systems on 1 to 8 NUMA nodes."""

    id, tag = "numa-caffe-9", S
    inputs = (
        Input("efficiency", 0.7, "of the peak in a thread's products", ASSUMED, "as of MKL", 0.5, 0.85),
        Input("first node", 0.84, "of Intel-Caffe's bytes", STATED, "table 3, package 0"),
        Input("scaling factor, 2 nodes", 1.47, "of a load's time in DRAM", STATED, "table 2"),
        Input("scaling factor, 4 nodes", 4.75, "of a load's time in DRAM", STATED, "table 2; of 8 nodes twice as much"),
        Input("mean load, 2 nodes", 153.2 / 69.2, "of a load's time", DERIVED, "table 2, memory latency"),
        Input("mean load, 4 nodes", 173.7 / 69.2, "of a load's time", DERIVED, "table 2; the same for 8"),
        Input(
            "line, in a node",
            5e-8,
            "s",
            ASSUMED,
            "from core to core; a barrier is a tree of them, up and down",
            2e-8,
            2e-7,
        ),
        Input("line, between nodes", 3e-7, "s", ASSUMED, "from node to node", 1e-7, 1e-6),
        Input("panel", 256, "inner length between barriers", ASSUMED, "of a product's blocks", 128, 512),
        Input("one thread's loops", 1.0, "times BOXES' bytes/s", ASSUMED, "8 GB/s (AMD 4, KNL 3)", 0.7, 1.4),
        Input("thread", 1e-5, "s", ASSUMED, "to start one: a solver and its team, in each iteration"),
        *(one for name in DRAWN for one in of_box(name, BOXES[name])),
        of_net(NET),
        Input("error", ERROR, "of a ratio", ASSUMED, "no such machine is at hand"),
    )

    def model(self, measured: Data) -> Data:
        """Return NUMA-Caffe's throughput over the others' by machine, and the ranges of the greatest."""
        rows = {other: {box: self.over(other, box) for box in DRAWN} for other in UP_TO}
        most = {other: vars(self.spread(lambda o=other: max(self.over(o, box) for box in DRAWN))) for other in UP_TO}
        return {"over": rows, "most": most, "BVLC": {box: self.bvlc_scales(box) for box in DRAWN}}

    def over(self, other: str, name: str) -> float:
        """Return NUMA-Caffe's throughput on all nodes over BVLC's on one, or over Intel-Caffe's on all."""
        box = BOXES[name]
        base = self.seconds(other, NET, box, 1 if other == "BVLC" else box.nodes)
        return base / self.seconds("NUMA", NET, box, box.nodes)

    def bvlc_scales(self, name: str) -> float:
        """Return BVLC-Caffe's throughput on all nodes over that on one."""
        box = BOXES[name]
        return self.seconds("BVLC", NET, box, 1) / self.seconds("BVLC", NET, box, box.nodes)

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge both 'up to'; the worse verdict counts."""
        found = {other: Found(**each) for other, each in modelled["most"].items()}
        verdicts = [judged(found[other], paper, ERROR) for other, paper in UP_TO.items()]
        text = " and ".join(f"{found[other].words()} ({v})" for other, v in zip(UP_TO, verdicts, strict=True))
        return Judged(max(verdicts, key=VERDICTS.index), text)

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw both ratios by machine, with the paper's greatest."""
        rows = modelled["over"]
        both = [
            ("over BVLC, one node", rows["BVLC"].values(), MODEL),
            ("over Intel, all nodes", rows["Intel"].values(), "grey"),
        ]
        bars(axes, DRAWN, both)
        axes.axhline(UP_TO["BVLC"], color=PAPER, linestyle="--", label="paper: up to 14 over BVLC")
        axes.axhline(UP_TO["Intel"], color=PAPER, linestyle=":", label="paper: up to 2.4 over Intel")
        axes.set(
            ylabel="NUMA-Caffe, times as fast", ylim=(0, 1.9 * UP_TO["BVLC"]), title="AlexNet, all NUMA nodes, modelled"
        )

    def seconds(self, system: str, net: str, box: Box, nodes: int) -> float:
        """Return the seconds of an iteration."""
        each, batch, updated = parts(net), BATCHES[net], UPDATE * weights_of(net)
        if system == "BVLC":
            return sum(self.bvlc(part, box, nodes, batch) for part in each) + updated / self.core(box)
        if system == "Intel":
            return self.intel(each, box, nodes, batch, updated)
        alone = self.intel(each, box, 1, batch / nodes, 0.0)
        update = max(updated / box.memory, updated / (box.cores * self.core(box)))
        exchange = (ceil(log2(nodes)) + nodes - 1) * weights_of(net) / box.link  # up a tree; from the root to each
        return alone + update + exchange + (nodes + box.cores) * self.value("thread")

    def bvlc(self, part: Part, box: Box, nodes: int, batch: int) -> float:
        """Return the seconds of a layer: one thread's loops, then all threads' products, image by image."""
        far, threads = (nodes - 1) / nodes, nodes * box.cores
        touched = part.ways * part.columns if part.products else part.bottom  # by the threads of other nodes
        again = touched * far * (self.load("mean load", nodes) - 1)
        seconds = batch * (part.element_wise + again) / self.core(box)
        rate = threads * box.flops * self.value("efficiency")
        if part.type == INNER:
            moved = batch * part.moved + part.ways * part.weights
            return seconds + max(batch * part.flops / rate, moved / box.memory, far * moved / box.link)
        crossing = zip(part.products, part.fetched(nodes), part.results(), strict=True)
        for product, fetched, result in crossing:
            used = 2.0 * prod(product) / (rate * spread(product, threads))
            meets = product[3] * ceil(product[2] / self.value("panel"))
            seconds += batch * (max(used, (fetched + far * result) / box.link) + meets * self.fork(box, nodes))
        return seconds

    def intel(
        self,
        each: Iterable[Part],
        box: Box,
        nodes: int,
        batch: float,
        updated: float,
        memory: Callable[[float, Box, int], float] | None = None,
    ) -> float:
        """Return the seconds of a solver whose threads have images of their own.

        `updated` are the bytes of its update; `memory` returns the seconds of bytes, by default those of first touch.
        """
        all_parts, threads = list(each), nodes * box.cores
        images = {CONVOLUTION: ceil(batch / threads), INNER: batch / threads}  # a thread's
        products = sum(images[part.type] * part.flops for part in all_parts if part.products)
        loops = (batch * sum(part.element_wise for part in all_parts) + updated) / (threads * self.core(box))
        blobs = sum(part.moved + part.unfolded(box.cache, box.cores) for part in all_parts)
        read = sum(part.ways * part.weights for part in all_parts if part.type == INNER)
        waits = (memory or self.first_touch)(batch * blobs + read + updated, box, nodes)
        forks = 2 * len(all_parts) * self.fork(box, nodes)
        return products / (box.flops * self.value("efficiency")) + max(loops, waits) + forks

    def first_touch(self, moved: float, box: Box, nodes: int) -> float:
        """Return the seconds of bytes that lie on the first node for the most part."""
        first = moved if nodes == 1 else self.value("first node") * moved
        waited = moved / (nodes * box.memory) * self.load("scaling factor", nodes)
        return max(first / box.memory, first * (nodes - 1) / nodes / box.link, waited)

    def core(self, box: Box) -> float:
        """Return the bytes a second of a thread's loops."""
        return box.core * self.value("one thread's loops")

    def load(self, what: str, nodes: int) -> float:
        """Return table 2's factor of a load's time. With 8 nodes twice as many wait for a memory that is full."""
        known = 1.0 if nodes == 1 else self.value(f"{what}, {min(nodes, 4)} nodes")
        return known * (nodes / 4 if what == "scaling factor" and nodes > 4 else 1)

    def fork(self, box: Box, nodes: int) -> float:
        """Return the seconds of a fork and a join of all threads: trees over a node's cores, and over the nodes."""
        near, far = self.value("line, in a node"), self.value("line, between nodes")
        return 2 * (log2(box.cores) * near + log2(nodes) * far)


FIGURE = Domains()
