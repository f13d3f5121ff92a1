"""S-Caffe, figure 8: GoogLeNet on 16 to 160 GPUs of cluster A, strong scaling.

Iterations are simulated whole (`scaffe.simulation`) on the described cluster: the real workflows and schedules, in
virtual time. The computing of a batch is fitted on 160 over 32 GPUs; 128 over 16 must follow. The same simulation is
held against 2 to 8 nodes of the emulated cluster, each workflow by itself: layers take the times of a profile, `auto`
takes what its table says, and the links have the times that were measured between two nodes. There nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import lab
import replays
from drawing import curves, plain
from figure import ASSUMED, DERIVED, FITTED, MODEL, OTHER, OURS, PAPER, STATED, Check, Data, Figure, Input, within
from replays import SC_B, SC_OB, SC_OBR

import scaffe
from scaffe.parallel.run import AUTO, Run
from scaffe.simulation import find_cluster, simulate_iteration
from scaffe.simulation.iteration import build
from scaffe.simulation.layer_times import LayerTimes, of_device

NET, GOOGLENET, COUNTS = "googlenet", 13_378_280, (8, 16, 32, 64, 128, 160)  # elements, GPUs
NODES, RATE, OPERATIONS = (2, 4, 8), 400, 1.5e11  # RATE: Mbit/s; OPERATIONS: a second, of the replayed layers
CLUSTER_A = find_cluster("cluster-a")
ROWS, LINKS, BATCH = (SC_B, SC_OB, SC_OBR), "links", 16  # BATCH: images of a node
SHORT = "--iterations", "1", "--rounds", "2"  # an iteration takes 1 to 4 s
SC_OBR_HR = "SC-OBR, HR"
WAYS = {  # workflow, algorithm
    SC_OBR_HR: ("SC-OBR", "auto"),
    "no HR": ("SC-OBR", "binomial"),
    "no overlap": ("SC-B", "auto"),
    "neither": ("SC-B", "binomial"),
}
SWITCHED = [way for way in WAYS if way != SC_OBR_HR]


@cache
def googlenet() -> tuple[scaffe.Net, LayerTimes]:
    """Return the net, and its layers' times on cluster A, whose proportions count alone."""
    net = build(NET, 1)
    return net, of_device(net, CLUSTER_A)


@cache
def seconds(ranks: int, computing: float, way: str = SC_OBR_HR) -> float:
    """Return the seconds of an iteration; `computing` is that of the whole batch on one GPU."""
    net, times = googlenet()
    part = computing / ranks / times.computing
    forward, backward = ([part * each for each in passes] for passes in (times.forward, times.backward))
    own = replace(times, forward=forward, backward=backward, record_bytes=0.0)
    workflow, algorithm = WAYS[way]
    run = Run(workflow, reduce=algorithm, bucket_bytes=AUTO)
    return simulate_iteration(net, ranks, CLUSTER_A, run, times=own).seconds


def gain(many: int, few: int, computing: float, way: str = SC_OBR_HR) -> float:
    """Return how many times as fast `many` GPUs are as `few`."""
    return seconds(few, computing, way) / seconds(many, computing, way)


class GoogLeNet160(Figure):
    """Strong scaling of GoogLeNet."""

    id, rank = "s-caffe-8", 7
    slow = True
    title = "GoogLeNet on 16 to 160 GPUs"
    source = "S-Caffe, figure 8, section 6.3"
    paper = "128 GPUs 3.3x over 16, 160 GPUs 2.5x over 32"
    inputs = (
        Input("160 over 32", 2.5, "", STATED, "section 6.3"),
        Input("128 over 16", 3.3, "", STATED, "section 6.3"),
        Input("gradients", 4 * GOOGLENET, "bytes", DERIVED, "the net's parameters, with its two auxiliary heads"),
        Input("alpha", CLUSTER_A["alpha"], "s", ASSUMED, "between nodes: a kernel start and a rendezvous"),
        Input("1 / beta", CLUSTER_A["rate"], "bytes/s", ASSUMED, "between nodes: one FDR port"),
        Input("1 / beta in a node", CLUSTER_A["rate_in"], "bytes/s", ASSUMED, "devices over PCIe 3"),
        Input("computing", 5.45, "s of the whole batch on one GPU", FITTED, "on 160 over 32"),
    )
    unexplained = (
        "The batch sizes stand in the figure alone, and no time of an iteration in the text.",
        "The conclusion gives 3.3x to CaffeNet and 128 over 32 GPUs, section 6.3 to GoogLeNet and 128 over 16.",
        "The model's buckets are those that `--bucket-bytes auto` gives, 32 MB on 160 GPUs; the emulated nodes have "
        "training's default, 4 MB. On 160 GPUs SC-B takes 84 ms, SC-OBR 69, but 130 with 4 MB, and 157 with a bucket "
        "for each layer, as section 4.2 has them (preset s-caffe): with either the checks of overlap are missed. By "
        "4 MB computing was once fitted at 10.43 s; there SC-B took 115 ms, SC-OBR 131.",
        "The model takes longer on 160 GPUs than on 128, 68.9 ms against 66.0. The paper shows a gain up to 160.",
        "The two speedups are 41 % and 50 % of linear. Perfect hiding can't lose that much at 16 GPUs, in one node. "
        "Something else takes time there: less hid than could, or something never shrinks.",
    )

    def measure(self) -> Data:
        """Return the ms of overlap.py's rows by number of nodes, and the links' numbers."""
        found: Data = {}
        for n in NODES:
            with lab.cluster(str(n), f"{RATE}mbit"):
                numbers = replays.links()
                rows = replays.replayed(f"flops:{OPERATIONS:g}", ",".join(ROWS), NET, BATCH, *SHORT)
                found[str(n)] = {LINKS: numbers, **rows["ms"]}
        return found

    def model(self, measured: Data) -> Data:
        """Return the seconds of an iteration for each number of GPUs: all designs, and some switched off."""
        computing = self.value("computing")
        times = {way: [seconds(n, computing, way) for n in COUNTS] for way in WAYS}
        both = {way: [gain(160, 32, computing, way), gain(128, 16, computing, way)] for way in WAYS}
        made = replays.net(NET)
        layers = replays.times_at(made, OPERATIONS, BATCH)
        here = {
            n: {row: 1e3 * replays.predicted(made, replays.run_of(row), int(n), ms[LINKS], layers) for row in ROWS}
            for n, ms in measured.items()
        }
        return {"seconds": times, "gains": both, "here": here}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check both speedups, and that each switch alone lowers them and takes time; the simulation of few nodes."""
        gains = modelled["gains"]
        for i, what in enumerate(("160 over 32", "128 over 16")):
            name = f"{what} GPUs" + (" (computing is fitted on this)" if i == 0 else "")
            yield within(name, gains[SC_OBR_HR][i], self.value(what), 0.2, fitted=i == 0)
            for way in SWITCHED:
                yield Check(f"{what} GPUs, {way}, over overlap and HR", gains[way][i] / gains[SC_OBR_HR][i], high=1.0)
        last = {way: each[-1] for way, each in modelled["seconds"].items()}
        for way in SWITCHED:
            yield Check(f"time on 160 GPUs, {way}, over overlap and HR", last[way] / last[SC_OBR_HR], low=1.0)
        for n, ms in measured.items():
            for row, found in modelled["here"][n].items():
                name = row.removesuffix(":auto")
                yield within(f"{name}, {n} nodes here: model over measured", found / ms[row], 1.0, 0.1)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the speedups."""
        texts = [f"{name} {a:.2f}x, {b:.2f}x" for name, (a, b) in modelled["gains"].items()]
        nodes = ", ".join(f"{ms[SC_OBR]:.0f} (model {modelled['here'][n][SC_OBR]:.0f})" for n, ms in measured.items())
        model = f"160 over 32, 128 over 16: {'; '.join(texts)}, computing fitted on the first"
        return f"ms of an iteration by SC-OBR on 2, 4, 8 nodes: {nodes}", model

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the time of 100 iterations, as the paper, and speedups over 16 GPUs."""
        left, right = figure.subplots(1, 2)
        seconds, colours = modelled["seconds"], (OURS, MODEL, OTHER, "grey")
        hundred = {name: [100 * t for t in each] for name, each in seconds.items()}
        curves(left, COUNTS, hundred, colours)
        curves(right, COUNTS, {name: [each[1] / t for t in each] for name, each in seconds.items()}, colours, label="")
        right.plot([128], [self.value("128 over 16")], "s", color=PAPER, label="paper: 3.3 at 128")
        base = seconds[SC_OBR_HR]
        at_32 = base[1] / base[2]
        right.plot([160], [2.5 * at_32], "^", color=PAPER, label="paper: 2.5 over 32, on our 32")
        left.set(xlabel="GPUs", ylabel="s of 100 iterations", yscale="log")
        left.set_title("Modelled: cluster A, computing fitted", fontsize=10)
        plain(left.yaxis, (5, 10, 20, 50))
        right.set(xlabel="GPUs", ylabel="speedup over 16 GPUs", ylim=(0, None))
        right.set_title("Modelled: the same, over 16 GPUs", fontsize=10)


FIGURE = GoogLeNet160()
