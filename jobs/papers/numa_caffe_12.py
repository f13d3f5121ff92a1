"""NUMA-Caffe, figures 12 to 14: the speedup of single layers, and the layers that take most of the time.

    python numa_caffe_12.py    times layers with OMP_NUM_THREADS threads, and the core's rates; prints them

A layer's time on NUMA nodes is that of numa-caffe-9. Measured: each layer with one thread and with two; beside it, a
roofline from the rates of one core: the longer of a layer's operations and its bytes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import lab
import numpy as np
import shapes
from drawing import bars, curves
from figure import MODEL, OTHER, OURS, PAPER, STATED, Check, Data, Figure, Input, NotMeasurable, within
from numa_caffe_9 import FIGURE as DOMAINS
from numa_nodes import BATCHES, BOXES, NETS, Part, parts

CONVOLUTIONS = {"conv1": 1.44, "conv2": 2.9, "conv3": 1.24}  # NUMA over Intel, CIFAR-10
MOST = 16  # layers of GoogLeNet
BOX = BOXES["SB"]
HERE = {"CIFAR-10": (100, 10), "GoogLeNet": (8, 2)}  # batch, iterations
THREADS, ROUNDS = (1, 2), 3
SYSTEMS = {"BVLC": OTHER, "Intel": MODEL}  # whose layers are summed up


def seconds(system: str, layer: Part, batch: int) -> float:
    """Return the seconds of a layer, forward and backward, on all nodes of SB."""
    if system == "BVLC":
        return DOMAINS.bvlc(layer, BOX, BOX.nodes, batch)
    if system == "Intel":
        return DOMAINS.intel([layer], BOX, BOX.nodes, batch, 0.0)
    return DOMAINS.intel([layer], BOX, 1, batch / BOX.nodes, 0.0)


def longest(times: Iterable[float]) -> float:
    """Return what the longest layers take of all layers' time, percent."""
    found = sorted(times, reverse=True)
    return 100 * sum(found[:MOST]) / sum(found)


class Layers(Figure):
    """Which layers gain from blobs at home, and which take the time."""

    id, rank = "numa-caffe-12", 19
    title = "Speedup of single layers on four NUMA nodes; the layers that take most of the time"
    source = "NUMA-Caffe, figures 12 to 14, section 5.2"
    paper = "conv1 1.44, conv2 2.9, conv3 1.24 over Intel-Caffe (CIFAR-10); 16 layers are 80 % of GoogLeNet's time"
    inputs = (
        *(Input(f"{name}, NUMA over Intel", found, "", STATED, "section 5.2") for name, found in CONVOLUTIONS.items()),
        Input("16 layers", 80, "% of GoogLeNet's time", STATED, "section 5.2"),
        *(one for one in DOMAINS.inputs if one.name.startswith("SB:")),
    )
    unexplained = (
        "Which layers are the 16 is not said, nor by which system 80 % is measured: BVLC-Caffe's time, which figure 14 "
        "divides by, and Intel-Caffe's are both checked. GoogLeNet has 57 convolutions, so that in any system whose "
        "time goes by operations and bytes 16 layers have less than 80 %.",
        "conv2 gains twice what conv1 and conv3 do, though its operations for each byte lie between theirs.",
        "Layers of AlexNet and GoogLeNet have no number in the text.",
    )

    def measure(self) -> Data:
        """Return milliseconds by net, number of threads and layer, the medians of rounds, and the core's rates."""
        if len(os.sched_getaffinity(0)) < max(THREADS):
            raise NotMeasurable(f"{max(THREADS)} threads need as many cores")
        runs = [[_timed(threads) for threads in THREADS] for _ in range(ROUNDS)]
        rates = {name: float(np.median([run[0]["rates"][name] for run in runs])) for name in runs[0][0]["rates"]}
        return {"rates": rates, "times": {net: [_medians(runs, net, k) for k in range(len(THREADS))] for net in HERE}}

    def model(self, measured: Data) -> Data:
        """Return NUMA over Intel by CIFAR-10's layers, the part of GoogLeNet's 16 longest, and this core's layers."""
        gains = {}
        for layer in parts("CIFAR-10"):
            both = (seconds(system, layer, BATCHES["CIFAR-10"]) for system in ("Intel", "NUMA"))
            gains[layer.name] = next(both) / next(both)
        found: Data = {
            "gains": {name: gains[name] for name in CONVOLUTIONS},
            "part": {
                system: longest(seconds(system, layer, BATCHES["GoogLeNet"]) for layer in parts("GoogLeNet"))
                for system in SYSTEMS
            },
        }
        if measured:
            found["here"] = {net: roofline(net, measured["rates"]) for net in HERE}
        return found

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check each gain, the part that 16 layers have, and this core's roofline, within 20 %."""
        for name, found in modelled["gains"].items():
            yield within(f"CIFAR-10, {name}: NUMA over Intel", found, CONVOLUTIONS[name], 0.2)
        what, paper = f"GoogLeNet: the {MOST} longest layers, % of the time", self.value("16 layers")
        for system, found in modelled["part"].items():
            yield within(f"{what}, {system}, modelled", found, paper, 0.2)
        if measured:
            both = [longest(times.values()) for times in measured["times"]["GoogLeNet"]]
            for threads, found in zip(THREADS, both, strict=True):
                yield within(f"{what}, {threads} thread(s) here", found, paper, 0.2)
            yield within(f"{what}, this core's roofline against 1 thread", longest(_here(modelled)), both[0], 0.2)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the gains and the parts."""
        gains = ", ".join(f"{name} {found:.2f}" for name, found in modelled["gains"].items())
        parts_of = ", ".join(f"{system} {found:.0f} %" for system, found in modelled["part"].items())
        text = f"{gains}; 16 layers: {parts_of}"
        if not measured:
            return "", text
        both = [longest(times.values()) for times in measured["times"]["GoogLeNet"]]
        ours = ", ".join(f"{name} {found:.2f}" for name, found in threads_gain(measured).items())
        return f"16 layers {both[0]:.0f} % (1 thread), {both[1]:.0f} % (2); 2 threads over 1: {ours}", text

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the gains as bars, and the time of GoogLeNet's longest layers."""
        left, right = figure.subplots(1, 2)
        model = ("NUMA over Intel, modelled", modelled["gains"].values(), MODEL)
        rows = [("NUMA over Intel, paper", CONVOLUTIONS.values(), PAPER), model]
        if measured:
            rows.append(("2 threads over 1, measured here", threads_gain(measured).values(), OURS))
        bars(left, rows)
        left.axhline(1, color="grey", linestyle=":", linewidth=0.8)
        left.set_xticks(range(len(CONVOLUTIONS)), list(CONVOLUTIONS))
        left.set(ylabel="speedup of a layer", title="CIFAR-10 (paper: SB, four nodes)", ylim=(0, 4.2))
        times = {f"{system}, SB, modelled": _modelled(system) for system in SYSTEMS}
        if measured:
            one, two = (list(found.values()) for found in measured["times"]["GoogLeNet"])
            times |= {"1 thread, measured": one, "2 threads, measured": two, "roofline of this core": _here(modelled)}
        colours = (*SYSTEMS.values(), OURS, "#112D4E", "grey")[: len(times)]
        curves(right, range(1, 41), {name: summed(found)[:40] for name, found in times.items()}, colours, "-")
        right.plot([MOST], [self.value("16 layers")], "s", color=PAPER, label="paper")
        right.set(xlabel="longest layers", ylabel="% of the time", title="GoogLeNet", ylim=(0, 100))


def summed(times: Sequence[float]) -> list[float]:
    """Return the percent of the time that the 1, 2, 3, ... longest layers take."""
    found = np.cumsum(sorted(times, reverse=True))
    return [float(100 * each / found[-1]) for each in found]


def roofline(net: str, rates: dict[str, float]) -> dict[str, float]:
    """Return the seconds of each layer for an image, by the core's rates."""
    works = shapes.works(NETS[net])
    return {name: sum(map(max, zip(*_both(work, rates), strict=True))) for name, work in works.items()}


def _both(work: Any, rates: dict[str, float]) -> tuple[list[float], list[float]]:
    """Return the seconds of a layer's operations and of its bytes, forward and backward."""
    return [each / rates["flops"] for each in work.flops], [each / rates["bytes"] for each in work.moved]


def threads_gain(measured: Data) -> dict[str, float]:
    """Return by how much 2 threads speed up CIFAR-10's convolutions."""
    one, two = measured["times"]["CIFAR-10"]
    return {name: one[name] / two[name] for name in CONVOLUTIONS}


def _here(modelled: Data) -> list[float]:
    return list(modelled["here"]["GoogLeNet"].values())


def _modelled(system: str) -> list[float]:
    return [seconds(system, layer, BATCHES["GoogLeNet"]) for layer in parts("GoogLeNet")]


def _timed(threads: int) -> Data:
    found: Data = lab.last_json(lab.output(sys.executable, __file__, OMP_NUM_THREADS=str(threads)))
    return found


def _medians(runs: list[list[Data]], net: str, k: int) -> dict[str, float]:
    """Return the median over rounds of each layer's time."""
    found = [run[k]["times"][net] for run in runs]
    return {name: float(np.median([each[name] for each in found])) for name in found[0]}


def rates() -> dict[str, float]:
    """Return the operations/s of a large matrix product, and the bytes/s of adding large arrays."""
    from core_rate import CoreRate
    from cores import bandwidth

    return {"flops": 1e9 * CoreRate("float32").best(), "bytes": 1e9 * bandwidth()}


def layers(net: str) -> dict[str, float]:
    """Return the milliseconds of each layer, forward and backward."""
    from iteration import build, zoo

    from scaffe.tools.benchmark import measure

    batch, iterations = HERE[net]
    made = build(zoo(NETS[net], batch), "auto")
    found = measure(made, iterations)
    both = zip(made.layers, found.forward, found.backward, strict=True)
    return {layer.name: forward + backward for layer, forward, backward in both}


FIGURE = Layers()

if __name__ == "__main__":
    print(json.dumps({"rates": rates(), "times": {net: layers(net) for net in HERE}}))
