"""S-Caffe, figure 11, equations 1 and 2: chains of chunks against binomial trees of whole messages.

Measured on 8 nodes of the emulated cluster, whose links are slow enough to be the bottleneck.
"""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import median
from typing import Any

import lab
from drawing import MODEL, OURS, PAPER, curves
from figure import DERIVED, STATED, Data, Figure, Input, M
from verdicts import Found, Judged, judged

from collectives.model import cost
from collectives.model.clusters import KESCH

NODES, RATE, CHUNKS = 8, 200, 16  # RATE: Mbit/s
SIZES = {1 << 10: 30, 64 << 10: 30, 1 << 20: 10, 8 << 20: 3, 32 << 20: 3}  # bytes, with the calls
LARGE, ERROR = (8 << 20, 32 << 20), 0.1
WAYS = "binomial", "chain", "auto"


def names(nbytes: int) -> list[str]:
    """Return rank.py's names of WAYS, with their chunks, for a number of bytes."""
    return [f"binomial/{nbytes}", f"chain/{max(4, nbytes // CHUNKS)}", "auto"]


def gain(ranks: int, chunks: int) -> float:
    """Return binomial over chain by equations 1 and 2, with t(b / n) = t(b) / n."""
    links = replace(KESCH, ranks_per_node=1, alpha=0, beta=1, gamma=0)
    binomial, chain = (
        cost("reduce", way, links, ranks, chunks, [n]) for way, n in (("binomial", chunks), ("chain", 1))
    )
    return binomial.seconds / chain.seconds


class HierarchicalReduce(Figure):
    """Chains of chunks against binomial trees of whole messages."""

    id, tag = "s-caffe-11", M
    inputs = (
        Input("binomial / chain", gain(NODES, CHUNKS), "times", DERIVED, "equations 1 and 2; 16 chunks are our choice"),
        Input("chain", NODES, "ranks", STATED, "section 5: the best length"),
        Input("error", ERROR, "of a time", DERIVED, "docs/simulate.md: emulated links against their rates"),
    )

    def measure(self) -> Data:
        """Return the seconds of each call by way and size."""
        jobs = [("reduce", n, names(n), calls) for n, calls in SIZES.items()]
        with lab.cluster(str(NODES), f"{RATE}mbit"):
            rows = lab.last_json(lab.on_nodes(1, str(lab.JOBS / "bench/rank.py"), json.dumps(jobs)))
        seconds: dict[tuple[int, str], list[float]] = {}
        for _, nbytes, algorithm, t in rows:
            seconds.setdefault((nbytes, algorithm), []).append(t)
        return {way: [seconds[n, names(n)[k]] for n in SIZES] for k, way in enumerate(WAYS)}

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge the gain of large messages by the equations'."""
        found = Found.of(gains(measured, "chain")[list(SIZES).index(n)] for n in LARGE)
        return Judged(judged(found, self.value("binomial / chain"), ERROR), f"{found.words()}, 8 and 32 MB, 8 nodes")

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw the gains over a binomial tree against the size of messages."""
        rows = {"chain of 16 chunks, measured": gains(measured, "chain"), "auto, measured": gains(measured, "auto")}
        curves(axes, list(SIZES), rows, (OURS, MODEL), "o-")
        axes.axhline(self.value("binomial / chain"), color=PAPER, linestyle="--", label="paper: equations 1 and 2")
        axes.axhline(2.6, color="grey", linestyle=":", label="paper: HR over MVAPICH2, 160 GPUs (not tested)")
        axes.axvline(8 << 20, color=PAPER, linewidth=0.8, label="paper: much better from here on")
        axes.set(xlabel="bytes of a message", ylabel="times as fast as a binomial tree", xscale="log", ylim=(0, 4.6))
        axes.set_title(f"8 nodes, links of {RATE} Mbit/s", fontsize=10)


def gains(measured: Data, way: str) -> list[float]:
    """Return the binomial tree's median time over a way's, by size."""
    return [median(a) / median(b) for a, b in zip(measured["binomial"], measured[way], strict=True)]


FIGURE = HierarchicalReduce()
