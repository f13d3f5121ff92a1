"""NUMA-Caffe, tables 3 and 6, sections 1 and 3.2: where bytes lie, and what processes in place of threads cost.

    mpirun -n P python numa_caffe_3.py INSTANCES    trains AlexNet; rank 0 prints private bytes

- First touch: the main thread fills all blobs, so that they lie on its package; a solver on each package has its own.
- numactl --interleave: each package has its part of the pages, of which the others need most.
- A process has weights, gradients and history of its own; the blobs of the batch are divided. Threads share weights.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import lab
from drawing import bars
from figure import ASSUMED, DERIVED, MODEL, OURS, PAPER, STATED, Check, Data, Figure, Input, within
from numa_caffe_9 import FIGURE as DOMAINS
from numa_nodes import BATCHES, BOXES, UPDATE, Box, parts, weights

TABLE_3, TABLE_6 = (12.598, 0.728, 1.023, 0.653), (3.69, 3.37, 3.80, 3.40)  # GB/s of each package
PROCESSES, COUNTS = (1, 2, 4, 8, 14, 28, 56), (1, 2, 4, 8)  # of the paper's machine, and here
NET, BATCH, ITERATIONS = "alexnet", 64, 1  # here; the paper's batch takes minutes
GB = 1e9


def part(rates: tuple[float, ...], which: int) -> float:
    """Return a package's part of all bytes."""
    return rates[which] / sum(rates)


def private() -> int:
    """Return the bytes that this process alone has, as smem counts them."""
    with open("/proc/self/smaps_rollup") as file:
        return 1024 * sum(int(line.split()[1]) for line in file if line.startswith("Private_"))


def train(instances: str) -> None:
    """Train for some iterations; rank 0 prints all ranks' private bytes before there is a net, and after."""
    from iteration import solver_param, zoo

    import scaffe
    from scaffe.parallel.instances.instances import Instances
    from scaffe.parallel.run import Run

    before = private()
    param = solver_param(zoo(NET, BATCH))
    own = Run(reduce="binomial")  # leaves parameters in each rank's own memory, as MPI programs have them
    solver = scaffe.Solver(param, run=own, instances=Instances(instances, oversubscribe=True))
    solver.step(ITERATIONS)
    found = solver.world.comm.gather((before, private()))
    if found:
        print(json.dumps([sum(each) for each in zip(*found, strict=True)]))
    solver.close()


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
        Input("copies of the weights", 3, "of a process", DERIVED, "Caffe: weights, gradients, history"),
        Input("threads", 56, "of all processes", ASSUMED, "one for each core; each has im2col's columns of all layers"),
        Input("prefetched batches", 3, "of all processes", ASSUMED, "Caffe's default; section 3.3 has the queues"),
        Input("AlexNet: blobs", 2 * 5_653_396, "bytes of an image", DERIVED, "tops and their gradients"),
    )
    unexplained = (
        "Table 3's 16 % outside package 0 are buffers that threads touch first; their sizes are not given.",
        "Whether private memory has gradients of blobs, and code and libraries of 56 processes, is not said. With two "
        "copies of the weights in place of three, 56 processes have 6.5 times the memory of one.",
        "Interleaving keeps latency: three of four lines come from another node. This model has bandwidth alone.",
        "scaffe's processes each have weights and gradients, rank 0 alone the history (SC-B). By default they lie in "
        "memory that a node's ranks share, where smem counts them as no one's; the measurement has them private.",
        "A first model had 1.4 MB for im2col's columns. AlexNet's are 17.6 MB, of each thread.",
    )

    def measure(self) -> Data:
        """Return the private bytes before and after training began, of 1 to 8 processes, and of as many threads."""
        return {
            "processes": [lab.ranks(n, __file__, "1") for n in COUNTS],
            "threads": [lab.ranks(1, __file__, str(n)) for n in COUNTS],
        }

    def interleaved(self, name: str) -> float:
        """Return Intel-Caffe's time with interleaved pages over NUMA-Caffe's, on all nodes, GoogLeNet."""
        net, box = "GoogLeNet", BOXES[name]
        seconds = DOMAINS.intel(parts(net), box, box.nodes, BATCHES[net], UPDATE * weights(net), spread_pages)
        return seconds / DOMAINS.seconds("NUMA", net, box, box.nodes)

    def memory(self, processes: int) -> float:
        """Return the bytes of AlexNet's training by Intel-Caffe in so many processes."""
        batch, each = BATCHES["AlexNet"], parts("AlexNet")
        columns = self.value("threads") * sum(layer.columns for layer in each)
        queues = self.value("prefetched batches") * batch * each[0].top
        own = processes * self.value("copies of the weights") * weights("AlexNet")
        return own + batch * self.value("AlexNet: blobs") + columns + queues

    def here(self, base: float, processes: int, threads: int) -> float:
        """Return the bytes of scaffe's training; `base` is of a process without a net.

        A process has weights, each of its threads gradients, the first process the history.
        """
        own = processes * (base + weights("AlexNet") * (1 + threads)) + weights("AlexNet")
        return own + BATCH * self.value("AlexNet: blobs")

    def model(self, measured: Data) -> Data:
        """Return the part of each package, slowdowns by interleaving, and memory by processes, the paper's and ours."""
        found: Data = {
            "package": 100 / BOXES["SB"].nodes,
            "interleave": {name: self.interleaved(name) for name in ("SB", "AMD")},
            "memory": [self.memory(p) / self.memory(1) for p in PROCESSES],
        }
        if measured:
            base = measured["processes"][0][0]
            found["processes"] = [self.here(base, n, 1) for n in COUNTS]
            found["threads"] = [self.here(base, 1, n) for n in COUNTS]
        return found

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check each claim, and the model against what is measured, within 20 %."""
        stated = self.value("package 0, Intel")  # to have all or a quarter leaves no choice: no evidence
        yield within("table 3: package 0's part if one thread touches all, %", 100.0, stated, 0.2, fitted=True)
        for which in range(len(TABLE_6)):
            what = f"table 6: package {which}'s part against the model's quarter, %"
            yield within(what, modelled["package"], 100 * part(TABLE_6, which), 0.2, fitted=True)
        for name, found in modelled["interleave"].items():
            what = f"GoogLeNet, {name}: interleaved pages, slowdown"
            yield within(what, found, self.value(f"interleave, {name}"), 0.2)
        what = "memory, 56 processes over 1"
        yield within(f"AlexNet: {what}", modelled["memory"][-1], self.value(what), 0.2)
        if measured:
            for kind in ("processes", "threads"):
                both = growth(after(measured[kind])), growth(modelled[kind])
                for count, found, expected in list(zip(COUNTS, *both, strict=True))[1:]:
                    yield within(
                        f"AlexNet: memory, {count} {kind} over 1, measured against modelled", found, expected, 0.2
                    )
            more = after(measured["processes"])[-1] / after(measured["threads"])[-1]
            yield Check(f"AlexNet: memory, {COUNTS[-1]} processes over as many threads, measured", more, 1)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the slowdowns and the memory."""
        slow = ", ".join(f"{name} {found:.2f}x" for name, found in modelled["interleave"].items())
        text = f"package 0 100 %, then 25 % each; interleave {slow}; memory {modelled['memory'][-1]:.1f}x"
        if not measured:
            return "", text
        grown = (f"{growth(after(measured[kind]))[-1]:.2f}x of {kind}" for kind in ("processes", "threads"))
        return f"private memory, {COUNTS[-1]} over 1: {', '.join(grown)}", text

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw bytes by package, memory by processes, and memory here."""
        left, middle, right = figure.subplots(1, 3)
        intel, numa = ([100 * part(table, k) for k in range(4)] for table in (TABLE_3, TABLE_6))
        model = ("NUMA, modelled", [modelled["package"]] * 4, OURS)
        bars(left, [("Intel, paper", intel, PAPER), ("NUMA, paper", numa, "grey"), model])
        left.set(xlabel="package", ylabel="% of all bytes", title="CIFAR-10, SB", ylim=(0, 110))
        middle.plot(PROCESSES, modelled["memory"], "o--", color=MODEL, label="modelled")
        middle.plot([56], [self.value("memory, 56 processes over 1")], "s", color=PAPER, label="paper: 6.3")
        middle.set(xlabel="processes", ylabel="private memory over one process's", title="AlexNet", ylim=(0, None))
        if measured:
            for kind, colour in (("processes", MODEL), ("threads", OURS)):
                right.plot(
                    COUNTS, [b / GB for b in after(measured[kind])], "o-", color=colour, label=f"{kind}, measured"
                )
                right.plot(COUNTS, [b / GB for b in modelled[kind]], "x:", color=colour, label=f"{kind}, modelled")
            right.set(xlabel="processes or threads", ylabel="private GB", ylim=(0, None))
            right.set(title=f"scaffe here, batch {BATCH}")
            right.set_xticks(COUNTS)


def after(measured: list[list[float]]) -> list[float]:
    """Return the private bytes of each count while it trains."""
    return [one[1] for one in measured]


def growth(values: list[float]) -> list[float]:
    """Return values over the first."""
    return [value / values[0] for value in values]


def spread_pages(moved: float, box: Box, nodes: int) -> float:
    """Return the seconds of bytes that lie on all nodes in equal parts, each needed by all nodes."""
    of_one = moved / nodes
    return max(of_one / box.memory, of_one * (nodes - 1) / nodes / box.link)


FIGURE = Placement()

if __name__ == "__main__":
    train(sys.argv[1])
