"""NUMA-Caffe, section 3.2: pages dealt over all nodes (numactl --interleave) against a solver on each node."""

from __future__ import annotations

from typing import Any

from drawing import MODEL, PAPER, bars, ranges
from figure import ASSUMED, STATED, Data, Figure, Input, S
from numa_caffe_9 import FIGURE as DOMAINS
from numa_nodes import BATCHES, BOXES, UPDATE, Box, parts, weights
from verdicts import VERDICTS, Found, Judged, judged

NET, SLOWER, ERROR = "GoogLeNet", {"SB": 1.4, "AMD": 1.6}, 0.1


class Interleaved(Figure):
    """What spreading the pages alone leaves to gain."""

    id, tag = "numa-caffe-3", S
    inputs = (
        Input("links", 1.0, "times BOXES' bytes/s", ASSUMED, "the processors' links", 0.5, 1.5),
        Input("batch", BATCHES[NET], "images", ASSUMED, "section 4.1: 64 to 256"),
        Input("SB", 1.4, "times", STATED, "section 3.2"),
        Input("AMD", 1.6, "times", STATED, "section 3.2"),
        Input("error", ERROR, "of a ratio", ASSUMED, "no such machine is at hand"),
    )

    def slower(self, name: str) -> float:
        """Return Intel-Caffe's time with interleaved pages over NUMA-Caffe's, on all nodes."""
        box = BOXES[name]
        seconds = DOMAINS.intel(parts(NET), box, box.nodes, BATCHES[NET], UPDATE * weights(NET), self.spread_pages)
        return seconds / DOMAINS.seconds("NUMA", NET, box, box.nodes)

    def spread_pages(self, moved: float, box: Box, nodes: int) -> float:
        """Return the seconds of bytes that lie on all nodes in equal parts, each needed by all nodes."""
        of_one = moved / nodes
        return max(of_one / box.memory, of_one * (nodes - 1) / nodes / (self.value("links") * box.link))

    def model(self, measured: Data) -> Data:
        """Return the slowdowns by machine."""
        return {name: vars(self.spread(lambda n=name: self.slower(n))) for name in SLOWER}

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge both slowdowns; the worse verdict counts."""
        found = {name: Found(**each) for name, each in modelled.items()}
        verdicts = [judged(found[name], paper, ERROR) for name, paper in SLOWER.items()]
        text = ", ".join(f"{name} {one.words()}" for name, one in found.items())
        return Judged(max(verdicts, key=VERDICTS.index), text)

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw the slowdowns with their ranges."""
        values = [each["value"] for each in modelled.values()]
        bars(axes, list(SLOWER), [("paper", SLOWER.values(), PAPER), ("modelled", values, MODEL)])
        ranges(axes, 0.2, modelled.values())
        axes.axhline(1, color="grey", linewidth=0.8)
        axes.set(ylabel="interleaved over NUMA-Caffe, time", ylim=(0, 2.4))


FIGURE = Interleaved()
