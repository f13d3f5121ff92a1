"""S-Caffe, figures 9 and 10: Caffe's quick net for CIFAR-10 on 64 GPUs, AlexNet on 16.

An iteration is the computing of a share of the batch, the broadcast and the reduce, of which nothing hides: an upper
bound of its time by described links. A device computes at the rate that swCaffe's table III has for AlexNet on a K40m,
with the copying that section VI.B has there, and without.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from drawing import curves
from figure import ASSUMED, DERIVED, MODEL, OTHER, OURS, PAPER, STATED, Check, Data, Figure, Input, within

from collectives.model import scaffe_row, tuned_row
from collectives.model.clusters import CLUSTER_B, KESCH, Cluster

QUICK, ALEXNET = 145_578, 60_965_224  # elements of the nets' parameters
CIFAR_COUNTS, ALEXNET_COUNTS = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16)
NAMES = ("binomial", "chain", "cb-8")


@cache
def talking(cluster: Cluster, ranks: int, elements: int, tuned: bool = True) -> float:
    """Return the seconds of a broadcast and a reduce; of binomial trees unless `tuned`."""
    if ranks == 1:
        return 0.0
    verbs = "bcast", "reduce"
    if tuned:
        return sum(tuned_row(verb, cluster, ranks, elements, algorithms=NAMES).seconds for verb in verbs)
    return 2 * scaffe_row("binomial", cluster, ranks, elements).seconds


class SmallNets(Figure):
    """Strong scaling of a net with few parameters, samples per second of one with many."""

    id, rank = "s-caffe-9", 12
    title = "CIFAR-10 quick on 64 GPUs, AlexNet on 16"
    source = "S-Caffe, figures 9 and 10, sections 6.3 and 6.4"
    paper = "CIFAR-10: 64 GPUs 32x over 1; AlexNet: up to 1395 samples/s"
    inputs = (
        Input("64 over 1", 32, "", STATED, "section 6.3; 33 in the conclusion"),
        Input("AlexNet on 16", 1395, "samples/s", STATED, "section 6.4"),
        Input("batch", 8192, "images", STATED, "section 6.3, CIFAR-10"),
        Input("AlexNet's batch", 64, "images of a device", ASSUMED, "not stated"),
        Input("device", 79.25, "images/s of AlexNet", STATED, "swCaffe, table III: a K40m; assumed for half a K80"),
        Input("copying", 0.4, "of the K40m's time", STATED, "swCaffe, section VI.B: over 40 %"),
        Input("AlexNet", 4.14e9, "operations of an image", DERIVED, "from the layers' shapes, forward and backward"),
        Input("CIFAR-10", 69.2e6, "operations of an image", DERIVED, "from the layers' shapes, forward and backward"),
        Input("cluster A, alpha", KESCH.alpha, "s", ASSUMED, "a kernel start and a rendezvous"),
        Input("cluster B, 1 / beta", 1 / CLUSTER_B.beta, "bytes/s", ASSUMED, "EDR"),
    )
    unexplained = (
        "Half of the speed on 64 GPUs is lost, while 0.58 MB travel in 1 ms and 128 images are computed in 27. Smaller "
        "products that fill no GPU, kernel starts or input must do it: the paper has no time of an iteration.",
        "The batch of AlexNet, and whether an image is counted in forward passes alone, are not stated.",
        "Caffe's own exchange is a binomial tree in one node; both exchanges are short beside computing up to 16 GPUs.",
    )

    def seconds(self, ranks: int, tuned: bool = True) -> float:
        """Return the seconds of an iteration of CIFAR-10, whose batch is divided."""
        rate = self.value("device") * self.value("AlexNet") / (1 - self.value("copying"))
        computing = self.value("batch") * self.value("CIFAR-10") / rate
        return computing / ranks + talking(KESCH, ranks, QUICK, tuned)

    def samples(self, ranks: int, device: float) -> float:
        """Return the images per second of AlexNet, with a batch for each device."""
        images = self.value("AlexNet's batch")
        return ranks * images / (images / device + talking(CLUSTER_B, ranks, ALEXNET))

    def model(self, measured: Data) -> Data:
        """Return speedups of CIFAR-10 by number of GPUs, Caffe's time over S-Caffe's on 16, and AlexNet's rates."""
        device = self.value("device")
        rates = {"copying as a K40m": device, "no copying": device / (1 - self.value("copying"))}
        return {
            "speedups": [self.seconds(1) / self.seconds(n) for n in CIFAR_COUNTS],
            "Caffe on 16": self.seconds(16, tuned=False) / self.seconds(16),
            "samples": {name: [self.samples(n, rate) for n in ALEXNET_COUNTS] for name, rate in rates.items()},
        }

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check the speedup, that Caffe is as fast up to 16, and the samples per second, each within 20 %."""
        yield within("CIFAR-10: 64 GPUs over 1", modelled["speedups"][-1], self.value("64 over 1"), 0.2)
        yield within("CIFAR-10: Caffe's time over S-Caffe's on 16 GPUs", modelled["Caffe on 16"], 1.0, 0.05)
        wanted = self.value("AlexNet on 16")
        found = modelled["samples"]["copying as a K40m"][-1]
        yield within("AlexNet: samples/s on 16 GPUs, a device as fast as a K40m", found, wanted, 0.2)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the speedup and the rates."""
        low, high = (each[-1] for each in modelled["samples"].values())
        return (
            "",
            f"64 GPUs {modelled['speedups'][-1]:.0f}x over 1; AlexNet {low:.0f} samples/s ({high:.0f} without copying)",
        )

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the time of 1,000 iterations, and samples per second."""
        left, right = figure.subplots(1, 2)
        times = [1000 * self.seconds(n) for n in CIFAR_COUNTS]
        left.loglog(CIFAR_COUNTS, times, "o--", color=OURS, label="modelled")
        left.plot([64], [times[0] / self.value("64 over 1")], "s", color=PAPER, label="paper: 32x, from our 1 GPU")
        left.set(xlabel="GPUs", ylabel="s of 1,000 iterations", title="CIFAR-10 quick, batch 8,192")
        curves(right, ALEXNET_COUNTS, modelled["samples"], (MODEL, OTHER), label="modelled, {}")
        right.axhline(self.value("AlexNet on 16"), color=PAPER, linestyle=":", label="paper: up to 1395")
        right.set(xlabel="GPUs", ylabel="samples/s", title="AlexNet, cluster B", ylim=(0, None))


FIGURE = SmallNets()
