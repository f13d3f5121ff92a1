"""ParaX, figures 1, 7, 11 and 12: what a barrier after each layer costs.

ResNet-50 is simulated on the paper's machine (scaffe/parallel/instances/simulation): cores of a domain share its
memory's bandwidth; an instance of several cores has a barrier after each layer, instances of one core have none. A
core's rate is fitted so that one instance uses the bandwidth that figure 1 has; the rest must follow. Here an instance
on each of two cores is measured beside one on both: figure 11's sign, since two cores leave bandwidth free.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from statistics import median
from typing import Any

import numpy as np
import shapes
from conditions import seconds_of
from drawing import bars
from figure import ASSUMED, FITTED, MODEL, OURS, PAPER, STATED, Check, Data, Figure, Input, within

from scaffe.parallel.instances.simulation.layers import LayerCost, on_machine
from scaffe.parallel.instances.simulation.machine import Machine
from scaffe.parallel.instances.simulation.picture import binned
from scaffe.parallel.instances.simulation.predict import Predicted, predict
from scaffe.parallel.instances.simulation.training import Division, Passes
from scaffe.tools.work import LayerWork

BATCH, CORES, BINS, THREADS = 32, 28, 200, (1, 2, 4, 7, 10, 14, 21, 28)
PHASES = "training", "inference"
HERE = {"MobileNet-v1": "mobilenet"}  # of figure 11, what is measured
IMAGES, PAIR, TURNS, SECONDS = 8, 2, 7, 0.5  # batch and cores here; turns of each way, and how long one is


@cache
def passes(inference: bool, net: str = "resnet50") -> Passes:
    """Return a net's passes with their operations and bytes; each layer has a kernel of its own."""
    works = [(name, work) for name, work in shapes.works(net, not inference).items() if work.units]
    costs = [layer_cost(name, work, way) for way in (0, 1) for name, work in works[:: 1 - 2 * way]]
    return Passes(costs[: len(works)] if inference else costs, 1)


def layer_cost(name: str, work: LayerWork, way: int) -> LayerCost:
    """Return the cost of a layer's forward (0) or backward (1) pass over one image."""
    gradients = work.gradients * way
    parameters = work.parameters + 2 * gradients  # read and written
    seconds = work.flops[way] / 1e11 or work.moved[way] / 2e10  # a Machine's rates replace these
    return LayerCost(name, seconds, work.flops[way], work.moved[way], parameters, gradients, units=work.units)


def knee(core_bandwidth: float, bandwidth: float) -> float:
    """Return the threads at which access-intensive layers take all of a domain's bandwidth."""
    return bandwidth / core_bandwidth


def convolving(threads: int) -> tuple[float, float]:
    """Return the seconds of a batch's compute-intensive layers on threads of a socket, and the part of its bandwidth.

    They take the longer of their operations and of their bytes, as the simulation has it, without barriers.
    """
    socket = machine(1)
    costs = [cost for cost in on_machine(passes(True).costs, socket) if cost.computes]
    loads = [cost.load(BATCH * CORES, threads, socket) for cost in costs]
    seconds = sum(max(load.seconds, load.moved / socket.bandwidth) for load in loads)
    return seconds, sum(load.moved for load in loads) / (seconds * socket.bandwidth)


def gains_of(net: str) -> dict[str, float]:
    """Return how much faster two instances of a core are than one of two, in training and inference; medians."""
    from turns import INFER, TRAIN, Turns, Way

    ways = [
        Way(f"{kind} {instances}", net, IMAGES, kind, instances=instances, threads=PAIR // instances)
        for kind in (TRAIN, INFER)
        for instances in (PAIR, 1)
    ]
    with Turns(ways, {}) as turns:
        counts = turns.counts(SECONDS)
        found = [turns.turn(counts, bool(k % 2)) for k in range(TURNS)]
    each = {"training": TRAIN, "inference": INFER}.items()
    return {phase: median(turn[f"{kind} 1"] / turn[f"{kind} {PAIR}"] for turn in found) for phase, kind in each}


class Barriers(Figure):
    """One instance on all cores against one on each core."""

    id, rank = "parax-11", 8
    slow = True
    title = "Barriers after each layer: bandwidth that is used, and the gain of an instance on each core"
    source = "ParaX, figures 1, 7, 11 and 12, sections 3 and 5.1"
    paper = "bandwidth 61.3 to 88.6 %; knee at 7 threads; 2.08 to 2.11x in inference, 1.73 to 2.93x in training"
    inputs = (
        Input(
            "bandwidth",
            140.8e9,
            "bytes/s of a domain",
            ASSUMED,
            "six channels of DDR4-2933",
        ),
        Input("core bandwidth", 20e9, "bytes/s", FITTED, "on figure 7's knee; the check has a core here"),
        Input("core rate", 130e9, "operations/s", FITTED, "on figure 1: one instance uses 61.3 % of the bandwidth"),
        Input("barrier", 5e-6, "s of an instance's threads", ASSUMED, "after each layer; the paper has no number"),
        Input("jitter", 0.05, "of a layer's time", ASSUMED, "standard deviation"),
        Input("batch", BATCH, "images of a core", STATED, "section 5: 1,792 on 56 cores"),
        Input("time", 50, "s", STATED, "figure 12: bandwidth and gain are means over as much time"),
        Input("one instance", 61.3, "% of bandwidth", STATED, "figure 1"),
        Input("instance per core", 88.6, "% of bandwidth", STATED, "section 5.1"),
        Input("convolution", 0.5, "of the bandwidth", STATED, "section 3, figure 7: about one half with 28 threads"),
        Input("CPU", 94.8, "% of the cores", STATED, "section 5.1, figure 12, an instance on each core"),
    )
    unexplained = (
        "88.6 / 61.3 is 1.45, but inference gains 2.08 to 2.11: sharing bandwidth alone can't give it. Figure 1 is one "
        "socket, figure 11 two; remote memory and the threads' own costs must supply the rest.",
        "25.6 GB/s in the text is one memory channel's.",
        "94.8 % is called the use of CPUs in inference, then in training. In the model cores that wait for memory are "
        "idle for a part; a profiler may count them as busy.",
        "Convolutions here read and write each blob once, and so take 28 % of the bandwidth with 28 threads. For half "
        "of it they must fetch a byte about twice, as products do whose factors no cache holds.",
        "A first model had the mean over one batch of 1,792 images: 77 %, and a gain of 1.24. Instances that begin "
        "together drift apart in the first batches only; the paper's means are over 50 s, about 16 batches.",
    )

    def measure(self) -> Data:
        """Return the bytes a second that one core here moves when it adds arrays, and the gains on two cores.

        An addition reads two arrays and writes one.
        """
        a, b = np.ones(1 << 25, np.float32), np.ones(1 << 25, np.float32)
        bandwidth = 3 * a.nbytes / min(seconds_of(lambda: np.add(a, b, out=a), 5))
        gains = {}
        if len(os.sched_getaffinity(0)) >= PAIR:
            gains = {name: gains_of(net) for name, net in HERE.items()}
        return {"core bandwidth": bandwidth, "gains": gains}

    def model(self, measured: Data) -> Data:
        """Return bandwidths and rates: one socket in inference as figure 1, two in training as figure 11."""
        batches = round(self.value("time") / simulated(True, 1, 1, 1).seconds)
        one, each = simulated(True, 1, CORES, 1), simulated(True, 1, 1, batches)
        trained = [simulated(False, 2, x, 1).rate for x in (2 * CORES, 1)]
        usage = {name: list(100 * self.over_time(run)) for name, run in (("one", one), ("each", each))}
        return {
            "bandwidth": [100 * one.bandwidth_used, 100 * each.bandwidth_used],
            "inference": each.rate / one.rate,
            "training": trained[1] / trained[0],
            "usage": usage,
            "here": {name: {phase: here(net, phase == "inference") for phase in PHASES} for name, net in HERE.items()},
            "seconds": {"one": one.seconds, "each": batches * each.seconds},
            "cores": [100 * one.cores_used, 100 * each.cores_used],
            "scaling": [min(n, knee(self.value("core bandwidth"), self.value("bandwidth"))) for n in THREADS],
            "convolution": {
                "scaling": [convolving(1)[0] / convolving(n)[0] for n in THREADS],
                "bandwidth": convolving(CORES)[1],
            },
        }

    def over_time(self, run: Predicted) -> np.ndarray:
        """Return the part of a socket's bandwidth that is used, in bins of equal time."""
        return binned(run.usage.seconds, run.usage.bandwidth, BINS) / self.value("bandwidth")

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check the knee, the bandwidths, the gain."""
        if measured:
            found = knee(measured["core bandwidth"], self.value("bandwidth"))
            yield Check("knee, threads, by this machine's core", found, 5, 9)
        for what, found in zip(("one instance", "instance per core"), modelled["bandwidth"], strict=True):
            fitted, paper = what == "one instance", self.value(what)
            name = f"bandwidth used, {what}, %" + " (core rate is fitted on this)" * fitted
            yield Check(name, found, paper - 5, paper + 5, fitted=fitted)
        what = f"figure 7: part of the bandwidth that convolutions use with {CORES} threads"
        yield within(what, modelled["convolution"]["bandwidth"], self.value("convolution"), 0.2)
        used = self.value("CPU")
        yield Check("figure 12: cores used, instance per core, %", modelled["cores"][1], used - 5, used + 5)
        yield Check("gain by sharing bandwidth alone, inference, one socket", modelled["inference"], 1.3, 1.6)
        for net, gains in measured.get("gains", {}).items():
            for phase, found in gains.items():
                yield Check(f"{net}, {phase}, {PAIR} cores here: an instance on each over one on both", found, low=1.0)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the bandwidths and the gains."""
        one, each = modelled["bandwidth"]
        gains = f"inference {modelled['inference']:.2f}x, training on two sockets {modelled['training']:.2f}x"
        model = f"bandwidth {one:.0f} % (fitted) to {each:.0f} %; {gains}; cores used {modelled['cores'][1]:.0f} %; "
        model += f"convolutions {modelled['convolution']['bandwidth']:.0%} of the bandwidth"
        if not measured:
            return "", model
        gains = ", ".join(
            f"{net} {phase} {found:.2f}x"
            for net, each in measured.get("gains", {}).items()
            for phase, found in each.items()
        )
        return f"a core moves {measured['core bandwidth'] / 1e9:.1f} GB/s; 2 cores: {gains}", model

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw bandwidth over time, layers over threads, and the gains here."""
        figure.set_size_inches(12, 4.6)
        panels = figure.subplot_mosaic(
            [["one", "threads", "here"], ["each", "threads", "here"]], width_ratios=(2, 1.3, 1)
        )
        titles = {"one": "one instance on 28 cores, a batch (fitted)", "each": "an instance on each of 28 cores"}
        stated = {"one": self.value("one instance"), "each": self.value("instance per core")}
        for (name, title), colour in zip(titles.items(), (MODEL, OURS), strict=True):
            axes, used = panels[name], modelled["usage"][name]
            time_of = (np.arange(BINS) + 0.5) / BINS * modelled["seconds"][name]
            axes.plot(time_of, used, color=colour, linewidth=0.9, label=f"modelled: mean {np.mean(used):.0f} %")
            axes.axhline(
                stated[name], color=PAPER, linestyle="--", linewidth=0.9, label=f"paper: mean {stated[name]} %"
            )
            axes.set(ylabel="bandwidth used, %", ylim=(0, 150), yticks=(0, 50, 100))
            axes.set_title(f"ResNet-50, inference: {title}", fontsize=9)
        panels["each"].set_xlabel("s")
        self._draw_threads(panels["threads"], modelled)
        for name, columns in (("one", 2), ("each", 2), ("threads", 1)):
            panels[name].legend(frameon=False, fontsize=7, loc="upper left", ncols=columns)
        self._draw_gains(panels["here"], measured, modelled)

    def _draw_threads(self, axes: Any, modelled: Data) -> None:
        """Draw the speedup of convolutions and of access-intensive layers over threads (figure 7)."""
        axes.plot(THREADS, modelled["convolution"]["scaling"], "--", color=OURS, label="convolution: modelled")
        axes.plot(THREADS, modelled["scaling"], "--", color=MODEL, label="BN, activation: modelled, knee fitted")
        axes.plot(THREADS, THREADS, ":", color="grey", label="linear")
        axes.plot([7], [7], "s", color=PAPER, label="paper's knee")
        axes.set(xlabel="threads", ylabel="speedup", ylim=(0, 40), title="Figure 7")

    def _draw_gains(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw how much faster two instances of a core are than one of two, by net and phase."""
        names = [(net, phase) for net in HERE for phase in PHASES]
        rows = [("modelled", [modelled["here"][net][phase] for net, phase in names], MODEL)]
        if measured.get("gains"):
            rows.insert(0, ("measured", [measured["gains"][net][phase] for net, phase in names], OURS))
        bars(axes, rows)
        axes.axhline(1, color=PAPER, linewidth=0.9, linestyle=":")
        axes.set_xticks(range(len(names)), [phase for _, phase in names], fontsize=8)
        axes.set(ylabel="2 instances over 1", ylim=(0, 1.4))
        axes.set_title(f"Figure 11: {', '.join(HERE)},\n2 cores here", fontsize=9)
        axes.legend(frameon=False, fontsize=7, loc="upper left")


def machine(domains: int) -> Machine:
    """Return the paper's machine, or one of its sockets."""
    value = Barriers().value
    rates = {"core_gflops": value("core rate") / 1e9, "core_bandwidth": value("core bandwidth")}
    waits = {"barrier": value("barrier"), "jitter": value("jitter")}
    return Machine(CORES * domains, domains, value("bandwidth"), **rates, **waits, unfused=True)


@cache
def here(net: str, inference: bool) -> float:
    """Return the model's gain of an instance on each of two cores over one on both, as measured here.

    The two have a domain's bandwidth for themselves.
    """
    pair = replace(machine(1), cores=PAIR)
    one, each = (predict(passes(inference, net), pair, Division(x, IMAGES, divided=True), 4).rate for x in (PAIR, 1))
    return each / one


@cache
def simulated(inference: bool, domains: int, x: int, batches: int) -> Predicted:
    """Return the prediction of instances of x cores over some batches."""
    shape = machine(domains)
    return predict(passes(inference), shape, Division(x, BATCH * shape.cores, divided=True), batches)


FIGURE = Barriers()
