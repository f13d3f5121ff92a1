"""Beyond each paper: its own design against the best of this project, on its machine and on a present cluster.

Iterations between machines are estimated by closed forms (`scaffe.simulation.estimate`), inside one machine by
simulated cores. Ranges come from the inputs: latencies a third and three times as long, links and devices 1.5 times as
slow and as fast, each in turn. On the present cluster NCCL's published numbers stand beside both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import log2
from pathlib import Path
from typing import Any

from figure import Data
from numa_caffe_9 import FIGURE as DOMAINS
from numa_nodes import BATCHES, BOXES
from parax_11 import BATCH, CORES, passes
from parax_11 import FIGURE as BARRIERS
from verdicts import Found

import scaffe
from collectives.schedules.registry import CollectiveTime
from scaffe.files.atomic import write_atomically
from scaffe.parallel.instances.simulation.machine import Machine
from scaffe.parallel.instances.simulation.predict import predict
from scaffe.parallel.instances.simulation.training import Division
from scaffe.parallel.owners import ROOT
from scaffe.parallel.run import Run
from scaffe.simulation import find_cluster
from scaffe.simulation.closed_forms import S_CAFFE, ClosedForms
from scaffe.simulation.clusters import DescribedCluster
from scaffe.simulation.estimate import TRIED, best, estimate, faster_computing
from scaffe.simulation.iteration import build
from scaffe.simulation.layer_times import of_device

RESULT = Path(__file__).resolve().parent / "results/beyond.json"
NDR, RANKS = "ndr", 1024
BY_LAYER, BUCKETS = Run("SC-OBR", reduce="auto", bucket_bytes="0"), Run("SC-OBR", reduce="auto", bucket_bytes="16M")
WHOLE = Run("SC-B", "allreduce", reduce="auto")
IN_BF16 = [replace(run, gradient_numbers="bf16") for run in TRIED]
EARLY = Run("SC-OBR", "allreduce", reduce="auto", bucket_bytes="64M")
# NCCL's allreduce: 47 us between 2 nodes of 8 H20 over NDR (a thread of NVIDIA/nccl), 350 GB/s of bus bandwidth on 248
# nodes of 8 H200 (a thread of NVIDIA/nccl-tests); a tree's further levels are assumed.
NCCL_START, NCCL_LEVEL, NCCL_BUS = 47e-6, 10e-6, 350e9


@dataclass(frozen=True)
class Case:
    """A paper's net on a cluster: images of a rank, ranks, and the paper's own run and trees, if it has one there."""

    system: str
    net: str
    batch: int
    cluster: str
    ranks: int
    own: Run | None = None
    up: tuple[str, ...] = ()
    down: tuple[str, ...] = ()


S_CAFFES = (BY_LAYER, S_CAFFE, ("binomial",))
SWCAFFES = (WHOLE, ("halving",), ("halving",))
CASES = (
    Case("S-Caffe", "googlenet", 8, "cluster-a", 160, *S_CAFFES),
    *(Case("S-Caffe", "googlenet", batch, NDR, RANKS, *S_CAFFES) for batch in (8, 64, 256)),
    Case("swCaffe", "alexnet", 256, "taihulight", 1024, *SWCAFFES),
    *(Case("swCaffe", "alexnet", batch, NDR, RANKS, *SWCAFFES) for batch in (64, 256)),
    *(Case("ParaX", "resnet50", batch, NDR, RANKS) for batch in (64, 256)),
    *(Case("SingleCaffe", "cifar10_full", batch, NDR, RANKS) for batch in (64, 256)),
)


@dataclass(frozen=True)
class Nccl:
    """The costs of NCCL's allreduce by its published numbers."""

    ranks: int
    nodes: int

    def cost(self, what: str, nbytes: int) -> CollectiveTime:
        """Return the cost of an allreduce."""
        start = NCCL_START + NCCL_LEVEL * 2 * max(0.0, log2(self.nodes) - 1)
        seconds = start + 2 * nbytes * (1 - 1 / self.ranks) / NCCL_BUS
        return CollectiveTime(seconds, seconds, "NCCL", nbytes)


@cache
def net(name: str, batch: int) -> scaffe.Net:
    """Return a net for its shapes."""
    return build(name, batch)


def tried(name: str) -> Iterator[tuple[DescribedCluster, float]]:
    """Yield a cluster and how fast its devices compute: as described, and with each input at the ends of its range."""
    cluster = find_cluster(name)
    yield cluster, 1.0
    for factor in (1 / 3, 3):
        yield cluster.with_(alpha=factor * cluster["alpha"], alpha_in=factor * cluster["alpha_in"]), 1.0
    for factor in (1 / 1.5, 1.5):
        yield cluster.with_(rate=factor * cluster["rate"], rate_in=factor * cluster["rate_in"]), 1.0
        yield cluster, factor


def times_of(case: Case) -> Data:
    """Return the milliseconds of a case, with ranges: its own design, that in buckets of 16 MB, the best, NCCL's."""
    found: dict[str, list[float]] = {}
    how = ""
    for cluster, faster in tried(case.cluster):
        made = net(case.net, case.batch)
        times = faster_computing(of_device(made, cluster), faster)
        runs = best(made, case.ranks, cluster, times)
        top, run = runs[0], runs[0].run
        how = how or f"{run.workflow} {run.owners if run.sync == 'reduce-bcast' else run.sync}"
        row = {"best": top.seconds, "computing": top.computing}
        row["undivided"] = next(one.seconds for one in runs if one.run.owners == ROOT)
        row["bf16"] = min(top.seconds, best(made, case.ranks, cluster, times, IN_BF16)[0].seconds)
        if case.own:
            up, down = (ClosedForms(cluster.links, case.ranks, names) for names in (case.up, case.down))
            row["own"] = estimate(made, cluster, case.own, times, up, down).seconds
            row |= {name: min(row[name], row["own"]) for name in ("best", "undivided")}
            if case.own is BY_LAYER:
                row["in buckets"] = estimate(made, cluster, BUCKETS, times, up, down).seconds
        if case.cluster == NDR:
            sliced = cluster.with_(leaders=cluster["devices"])
            hidden = [run for run in TRIED if run.workflow == WHOLE.workflow]
            row["nothing hidden"] = best(made, case.ranks, cluster, times, hidden)[0].seconds
            row["slices"] = min(row["best"], best(made, case.ranks, sliced, times)[0].seconds)
            nccl: Any = Nccl(case.ranks, case.ranks // int(cluster["devices"]))
            row["NCCL"] = min(estimate(made, cluster, run, times, nccl).seconds for run in (WHOLE, EARLY))
        for name, seconds in row.items():
            found.setdefault(name, []).append(1e3 * seconds)
    pairs = {name: (name, "best") for name in ("own", "NCCL") if name in found} | {"undivided": ("undivided", "bf16")}
    over = {
        name: vars(Found.of(a / b for a, b in zip(found[slow], found[fast], strict=True)))
        for name, (slow, fast) in pairs.items()
    }
    return {
        "case": [case.system, case.net, case.batch, case.cluster, case.ranks], "how": how,
        "ms": {name: each[0] for name, each in found.items()}, "over": over,
    }  # fmt: skip


def inside() -> Iterator[Data]:
    """Yield NUMA-Caffe's and ParaX's designs in their machine: its own, and the best division of the cores."""
    for name in ("SB", "BW", "AMD"):
        box, images = BOXES[name], BATCHES["AlexNet"]
        rates = {
            "core_gflops": box.flops * DOMAINS.value("efficiency") / 1e9,
            "core_bandwidth": box.core,
            "link": box.link,
        }
        waits = {"barrier": DOMAINS.fork(box, 1), "jitter": BARRIERS.value("jitter")}
        machine = Machine(box.nodes * box.cores, box.nodes, box.memory, **rates, **waits, unfused=True)
        own = Division(box.cores, images, divided=True, gather="tree:2")
        yield divided("NUMA-Caffe", "alexnet", name, machine, own, tuple(machine.sizes()))
    own = Division(1, 2 * CORES * BATCH, divided=True, gather="server")
    yield divided("ParaX", "resnet50", "8280", BARRIERS.machine(2), own, (28, 2, 1))


def divided(system: str, name: str, place: str, machine: Machine, own: Division, sizes: tuple[int, ...]) -> Data:
    """Return the row of a machine whose cores are divided into instances."""
    made = passes(False, name)
    mine = predict(made, machine, own, 1)
    each = [
        predict(made, machine, Division(x, own.images, divided=True), 1)
        for x in sizes
        if machine.cores // x <= own.images
    ]
    found = max([mine, *each], key=lambda one: one.rate)
    gain = mine.seconds / found.seconds
    how = f"{machine.cores // found.division.x} instances, slices" if found is not mine else "its own"
    return {
        "case": [system, name, own.images, place, machine.cores], "how": how,
        "ms": {"own": 1e3 * mine.seconds, "best": 1e3 * found.seconds},
        "over": {"own": {"value": gain, "low": gain * 0.79 / 1.21, "high": gain * 1.21 / 0.79}},
    }  # fmt: skip


def model() -> None:
    """Write all rows."""
    rows = [*inside(), *map(times_of, CASES)]
    write_atomically(RESULT, ("[\n " + ",\n ".join(map(json.dumps, rows)) + "\n]\n").encode())


def rows() -> list[Data]:
    """Return the rows as they are kept."""
    found: list[Data] = json.loads(RESULT.read_text())
    return found


TEXT = """# Beyond each paper

What is each paper's own design worth today, beside the best way that scaffe has? No paper asks this. `jobs/papers.sh`
answers by models alone; nothing here was measured. A gain whose range holds 1 is none.

Inside a machine cores, memory and barriers are [simulated](../simulate-instances.md); the range is the model's error of
21 % on both sides. Between machines iterations are [estimated by closed forms](../simulate.md#the-best-way-to-run); the
ranges have latencies a third and three times as long, and links and devices 1.5 times as slow and as fast, each in
turn. The closed forms' own error, up to 20 % with overlap, comes on top.

`ndr` has nodes of 8 H100, each with an NDR adapter. The rival there is NCCL by its published numbers: 47 µs between two
nodes of 8 H20, 350 GB/s of bus bandwidth on 248 nodes of 8 H200; 10 µs more for each way and further level of a tree
are assumed. It has nothing hidden or all that can be, whichever is faster.
"""

SENTENCES = """
## Which idea of each paper still pays

- **S-Caffe.** Overlap still gains, up to {overlap:.2f} times over nothing hidden, and giving out parameters under the
  forward pass pays again once each rank owns a slice; a bucket for each layer and trees to one root do not.
- **swCaffe.** Its halving and doubling still sums, in slices as well; renumbering pays only where links between groups
  of nodes are over-subscribed, which `ndr`'s are not.
- **NUMA-Caffe.** A solver for each memory domain is as good as any division of the cores, within the model's error; a
  GPU's memory is one domain.
- **ParaX.** An instance on each core is the best division too, by a server or by slices; on a GPU no cores compute.
- **SingleCaffe.** Slices pay again, between the GPUs of a node: where one rank of a node sends scaffe takes up to
  {one:.1f} times as long as NCCL, where all send up to {every:.1f} times.

Not compared: parameters in fewer bits, SHARP in the switches, dragonflies.
"""


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield TEXT
    yield "## Its own design\n"
    yield "| system, net, images a rank | machine, ranks | its design, ms | best, ms | gain (range) | the best |"
    yield "|---|---|---|---|---|---|"
    for one in rows():
        if "own" in one["over"]:
            ms, gain = one["ms"], Found(**one["over"]["own"])
            buckets = f" ({ms['in buckets']:.4g} in buckets of 16 MB)" if "in buckets" in ms else ""
            yield f"| {name_of(one)} | {ms['own']:.4g}{buckets} | {ms['best']:.4g} | {gain.words()} | {one['how']} |"
    yield "\nRanks on one machine are its cores. A bucket for each layer is S-Caffe's own (section 4.2): on its cluster"
    yield "nearly the whole gain is the buckets', since the same design in them takes little longer than the best."
    yield "\n## Updates that are divided over the ranks, and gradients in bf16\n"
    yield "| system, net, images a rank | machine, ranks | computing, ms | undivided | best | in bf16 | gain (range) |"
    yield "|---|---|---|---|---|---|---|"
    for one in rows():
        if "undivided" in one["over"]:
            numbers = " | ".join(f"{one['ms'][name]:.4g}" for name in ("computing", "undivided", "best", "bf16"))
            yield f"| {name_of(one)} | {numbers} | {Found(**one['over']['undivided']).words()} |"
    yield "\nUndivided: the root updates all parameters, or every rank does. The best lets each rank have its slice too"
    yield "(`--owners slices`), and in bf16 gradients travel so (`--gradient-numbers bf16`). scaffe has both; on GPUs"
    yield "they ran on stand-ins alone so far. The gain is that of both over neither, with its range."
    yield "\n## NCCL as a rival, on `ndr`\n"
    yield "| system, net, images a rank | machine, ranks | nothing hidden, ms | best | all ranks send | NCCL, ms |"
    yield "|---|---|---|---|---|---|"
    for one in rows():
        if "NCCL" in one["over"]:
            ms, over = one["ms"], Found(**one["over"]["NCCL"])
            yield f"| {name_of(one)} | {ms['nothing hidden']:.4g} | {ms['best']:.4g} | {ms['slices']:.4g} | " + (
                f"{ms['NCCL']:.4g}: {over.words()} of the best |"
            )
    yield "\nThe best has one rank of a node that sends. Where all ranks send, each has its part of the node's sum, as"
    yield "scaffe does in host memory, not yet on GPUs. AlexNet's rows stand for NUMA-Caffe too: it has the same net."
    most = {"overlap": ("nothing hidden", "best"), "one": ("best", "NCCL"), "every": ("slices", "NCCL")}
    yield SENTENCES.rstrip().format(**{name: most_of(*pair) for name, pair in most.items()})


def most_of(slow: str, fast: str) -> float:
    """Return the most that one of a row's ms is of another."""
    return max(one["ms"][slow] / one["ms"][fast] for one in rows() if one["ms"].keys() >= {slow, fast})


def name_of(one: Data) -> str:
    """Return the first two cells of a row."""
    system, name, batch, cluster, ranks = one["case"]
    return f"{system}, {name}, {batch:,} | {cluster}, {ranks:,}"
