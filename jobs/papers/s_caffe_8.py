"""S-Caffe, figure 8: GoogLeNet on 16 to 160 GPUs of cluster A, strong scaling.

Iterations are simulated whole (`scaffe.simulation`) on the described cluster: the real workflows and schedules, in
virtual time, for several times of computing the whole batch on one GPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from drawing import MODEL, OURS, PAPER, curves, of_paper
from figure import ASSUMED, DERIVED, FITTED, STATED, Data, F, Figure, Input
from verdicts import UNCLEAR, Judged

from scaffe.parallel.run import AUTO, Run
from scaffe.simulation import find_cluster, simulate_iteration
from scaffe.simulation.iteration import build
from scaffe.simulation.layer_times import of_device

NET, GOOGLENET = "googlenet", 13_378_280  # elements
CLUSTER_A = find_cluster("cluster-a")
COMPUTING = 2.7, 3.6, 5.45, 7.0  # seconds of a batch on one GPU
PAIRS = {"128 over 16": (128, 16), "160 over 32": (160, 32)}
RUN = Run("SC-OBR", reduce="auto", bucket_bytes=AUTO)


def gains() -> dict[str, list[float]]:
    """Return how many times as fast the larger number of GPUs is, by pair and computing."""
    net = build(NET, 1)
    times = of_device(net, CLUSTER_A)

    def seconds(ranks: int, computing: float) -> float:
        part = computing / ranks / times.computing
        forward, backward = ([part * each for each in passes] for passes in (times.forward, times.backward))
        own = replace(times, forward=forward, backward=backward, record_bytes=0.0)
        return simulate_iteration(net, ranks, CLUSTER_A, RUN, times=own).seconds

    return {name: [seconds(few, c) / seconds(many, c) for c in COMPUTING] for name, (many, few) in PAIRS.items()}


class GoogLeNet160(Figure):
    """Strong scaling of GoogLeNet."""

    id, tag = "s-caffe-8", F
    slow = True
    inputs = (
        Input("128 over 16", 3.3, "times", STATED, "section 6.3; CaffeNet, 128 over 32, in the conclusion"),
        Input("160 over 32", 2.5, "times", STATED, "section 6.3"),
        Input("gradients", 4 * GOOGLENET, "bytes", DERIVED, "the net's parameters, with its two auxiliary heads"),
        Input("computing", COMPUTING[2], "s on one GPU", FITTED, "on 160 over 32; 3.2 on 128 over 16", 2.7, 7.0),
        Input("alpha", CLUSTER_A["alpha"], "s", ASSUMED, "between nodes: a kernel start and a rendezvous"),
        Input("1 / beta", CLUSTER_A["rate"], "bytes/s", ASSUMED, "between nodes: one FDR port"),
    )

    def model(self, measured: Data) -> Data:
        """Return the gains by pair and computing."""
        return gains()

    def needed(self, modelled: Data, pair: str) -> float:
        """Return the computing, in seconds, with which a pair's gain is the paper's."""
        return float(np.interp(self.value(pair), modelled[pair], COMPUTING))

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Say which two batches the two ratios need."""
        small, large = (self.needed(modelled, pair) for pair in PAIRS)
        text = (
            f"both, with two batches of {large / small:.1f} : 1 ({large:.1f} and {small:.1f} s of computing on one GPU)"
        )
        return Judged(UNCLEAR, text)

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw the gains against the computing of a batch, with the paper's where they are met."""
        rows = {f"{name}, simulated": each for name, each in modelled.items()}
        curves(axes, COMPUTING, rows, (OURS, MODEL), "o--")
        at = [self.needed(modelled, pair) for pair in PAIRS]
        of_paper(axes, at, [self.value(pair) for pair in PAIRS], "3.3 and 2.5, each with its own batch")
        for pair in PAIRS:
            axes.axhline(self.value(pair), color=PAPER, linestyle=":", linewidth=0.8)
        axes.set(xlabel="s of computing the whole batch on one GPU", ylabel="times as fast", ylim=(0, 8))
        axes.set_title("Cluster A, SC-OBR, hierarchical reduce", fontsize=10)


FIGURE = GoogLeNet160()
