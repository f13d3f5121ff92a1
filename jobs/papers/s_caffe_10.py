"""S-Caffe, figure 10: AlexNet on 16 GPUs of cluster B, simulated whole."""

from __future__ import annotations

from functools import cache
from typing import Any

import replays
from drawing import MODEL, OURS, curves, of_paper
from figure import ASSUMED, DERIVED, STATED, Data, Figure, Input, S
from replays import SC_OBR
from verdicts import Found, Judged, judged

from scaffe.simulation import find_cluster, simulate_iteration

NET, BATCH, CLUSTER_B = "alexnet", 64, "cluster-b"
COUNTS, ERROR = (1, 2, 4, 8, 16), 0.1  # GPUs
K40M = Input(  # for half a K80, here and in s_caffe_9.py
    "a device", 79.25, "images/s of AlexNet", ASSUMED, "half a K80 as a K40m: swCaffe, table III; without its copying",
    None, 79.25 / 0.6,
)  # fmt: skip


@cache
def samples(ranks: int, device: float) -> float:
    """Return the images per second of cluster B, whose devices compute `device` images a second."""
    times = replays.device_times(NET, CLUSTER_B, BATCH / device)
    return (
        ranks
        * BATCH
        / simulate_iteration(replays.net(NET), ranks, CLUSTER_B, replays.run_of(SC_OBR), times=times).seconds
    )


class AlexNet(Figure):
    """Samples per second of a net with many parameters."""

    id, tag = "s-caffe-10", S
    slow = True
    inputs = (
        Input("AlexNet on 16", 1395, "samples/s", STATED, "abstract"),
        K40M,
        Input("batch", BATCH, "images of a GPU", ASSUMED, "not stated"),
        Input("gradients", 4 * 60_965_224, "bytes", DERIVED, "the net's parameters"),
        Input("1 / beta", find_cluster(CLUSTER_B)["rate"], "bytes/s", DERIVED, "EDR, between nodes"),
        Input("error", ERROR, "of an iteration", DERIVED, "docs/simulate.md: simulated ranks"),
    )

    def model(self, measured: Data) -> Data:
        """Return samples per second by GPUs, and the range on 16."""
        return {
            "samples": [samples(n, self.value("a device")) for n in COUNTS],
            "fast": [samples(n, K40M.high or 0.0) for n in COUNTS],
        }

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge the samples per second."""
        found = Found.of((modelled["samples"][-1], modelled["fast"][-1]))
        return Judged(judged(found, self.value("AlexNet on 16"), ERROR), found.words(" samples/s", 4))

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw samples per second against GPUs."""
        rows = {"simulated, device as a K40m": modelled["samples"], "the same, without copying": modelled["fast"]}
        curves(axes, COUNTS, rows, (OURS, MODEL))
        of_paper(axes, [16], [self.value("AlexNet on 16")], "up to 1395")
        axes.set(xlabel="GPUs", ylabel="samples/s", ylim=(0, 2300), title="Cluster B, SC-OBR")


FIGURE = AlexNet()
