"""Beyond each paper: the best way to run its net on its machine, at 1,024 and 100,000 ranks, and on a present cluster.

Iterations are estimated by closed forms (`scaffe.simulation.estimate`), with each rank's batch the same at any number
of ranks. At 1,024 ranks the ranks of one case are driven too. NUMA-Caffe, SingleCaffe and ParaX end at a node: the
machine between their nodes, and what their designs do there, are assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from figure import ASSUMED, DERIVED, FITTED, MODEL, OTHER, OURS, PAPER, Check, Data, Figure, Input, holds, within

import scaffe
from scaffe.parallel.run import Run
from scaffe.simulation import find_cluster, simulate_iteration
from scaffe.simulation.closed_forms import S_CAFFE, ClosedForms
from scaffe.simulation.clusters import DescribedCluster
from scaffe.simulation.estimate import Estimate, best, estimate, faster_computing
from scaffe.simulation.iteration import build
from scaffe.simulation.layer_times import of_device

COUNTS = 1024, 100_000
NDR = "ndr"
RATE = 0.43e9
TREE = ("binomial",)
BLOCKING = Run("SC-B", reduce="auto")


@dataclass(frozen=True)
class Design:
    """A paper's own: its net, each rank's batch, its cluster, its run, and the algorithms up and down."""

    title: str
    net: str
    batch: int
    cluster: str
    run: Run
    up: Sequence[str]
    down: Sequence[str]
    words: str
    instances: str = ""  # the name of the input that says what an instance per core gains
    rate: str = ""  # the name of the input that is the rate between nodes


DESIGNS = (
    Design("NUMA-Caffe", "alexnet", 64, "8280", BLOCKING, TREE, TREE, "tree, nothing hidden", "per core"),
    Design("ParaX", "resnet50", 1792, "8280", BLOCKING, TREE, TREE, "tree, nothing hidden"),
    Design(
        "S-Caffe", "googlenet", 8, "cluster-a", Run("SC-OBR", reduce="auto", bucket_bytes="0"), S_CAFFE, TREE,
        "SC-OBR by layer, HR",
    ),
    Design("SingleCaffe", "cifar10_quick", 100, "tianhe", BLOCKING, TREE, TREE, "tree, nothing hidden"),
    Design(
        "swCaffe", "alexnet", 256, "taihulight", Run("SC-B", "allreduce", reduce="auto"), ["halving"], ["halving"],
        "renumbered allreduce, nothing hidden",
    ),
)  # fmt: skip
FITTED_RATE = replace(DESIGNS[-1], title="swCaffe, fitted rate", rate="swCaffe's rate")
ALLREDUCE, BUCKETS = "reduce and broadcast, no allreduce", "buckets of 1 MB"
PARTS = {  # what is left out of the best on a present cluster: the runs and algorithms that remain
    "no overlap": (lambda run: run.workflow == "SC-B", None),
    ALLREDUCE: (lambda run: run.sync == "reduce-bcast", None),
    "the same, by binomial trees alone": (lambda run: run.sync == "reduce-bcast", TREE),
    "allreduce by a ring": (lambda run: run.sync == "allreduce", ("ring",)),
    BUCKETS: (lambda run: run.bucket_bytes == "1M", None),
}


@cache
def net(name: str, batch: int) -> scaffe.Net:
    """Return a net; its batch only scales the layers' work."""
    return build(name, batch)


def machine(design: Design, name: str) -> DescribedCluster:
    """Return a described cluster; nodes of Xeons get a network."""
    cluster = find_cluster(name)
    if name == "8280":
        return cluster.with_(rate=BEYOND.value("rate"), alpha=BEYOND.value("alpha"))
    return cluster.with_(rate=BEYOND.value(design.rate)) if design.rate else cluster


def both(design: Design, ranks: int, name: str) -> tuple[Estimate, Estimate]:
    """Return the paper's own design and the best, on a cluster."""
    cluster = machine(design, name)
    small = net(design.net, design.batch)
    times = of_device(small, cluster)
    up, down = (ClosedForms(cluster.links, ranks, tuple(names)) for names in (design.up, design.down))
    own = estimate(small, cluster, design.run, times, up, down)
    faster = BEYOND.value(design.instances) if design.instances and name == design.cluster else 1.0
    return own, best(small, ranks, cluster, faster_computing(times, faster))[0]


def without(design: Design, ranks: int) -> Iterator[tuple[str, float]]:
    """Yield how much longer the best on a present cluster takes without a part of it."""
    cluster, small = find_cluster(NDR), net(design.net, design.batch)
    times = of_device(small, cluster)
    found = best(small, ranks, cluster, times)
    for part, (stays, names) in PARTS.items():
        forms = ClosedForms(cluster.links, ranks, names) if names else ClosedForms(cluster.links, ranks)
        runs = [one.run for one in found if stays(one.run)]
        yield part, min(estimate(small, cluster, run, times, forms).seconds for run in runs) / found[0].seconds


def described(one: Estimate) -> str:
    """Return a way to run in words."""
    names = sorted({cost.algorithm for cost in one.chosen.values()})
    buckets = "" if one.run.workflow == "SC-B" else f", buckets of {one.run.bucket_bytes}"
    return f"{one.run.workflow} {one.run.sync} by {' and '.join(names)}{buckets}"


class Beyond(Figure):
    """The best way to run each paper's net, against the paper's own."""

    id, rank = "beyond-1", 90
    slow = True
    title = "The best of this project on each paper's machine, and on a present cluster"
    source = "no figure: all five papers"
    paper = "nothing: none looks beyond its own design"
    inputs = (
        Input("alpha", 3e-6, "s", ASSUMED, "between nodes of NUMA-Caffe and ParaX, which stop at one node: EDR"),
        Input("rate", 12e9, "bytes/s", ASSUMED, "the same"),
        Input("per core", 1.23, "times as fast", DERIVED, "docs/simulate-instances.md: AlexNet, an instance per core "
              "over one on all 28; NUMA-Caffe has one for each domain"),
        Input("swCaffe's rate", RATE, "bytes/s", FITTED, "so that AlexNet's exchange takes 1.17 s on 1,024 nodes: "
              "swCaffe, figure 11, batch 256"),
    )  # fmt: skip
    unexplained = (
        "NUMA-Caffe, ParaX and SingleCaffe end at a node. Between nodes a binomial tree, with nothing hidden, stands "
        "for them. NUMA-Caffe's machine is ParaX's here; on both a rank is a domain.",
        "Computing alone has the update at its end. SC-OBR updates a bucket once its sum is complete, while the "
        "backward pass goes on, so that the best way can be shorter than computing alone.",
        "The closed forms have no stragglers, no links that others use, and no reading. swCaffe's measured exchange is "
        "9 to 29 times that of nominal rates (swcaffe-10): there overlap gains more, as with the fitted rate.",
        "Each machine's numbers are in scaffe/simulation/described, each with its origin.",
    )

    def model(self, measured: Data) -> Data:
        """Return the milliseconds of each design, and of the best, by machine and number of ranks."""
        rows = []
        for design in (*DESIGNS, FITTED_RATE):
            for name in (design.cluster, NDR)[: 1 if design.rate else 2]:
                for ranks in COUNTS:
                    own, ours = both(design, ranks, name)
                    row = {"system": design.title, "machine": name, "ranks": ranks, "own": 1e3 * own.seconds}
                    row |= {"best": 1e3 * ours.seconds, "how": described(ours), "alone": 1e3 * ours.computing}
                    rows.append(row)
        parts = {design.title: dict(without(design, COUNTS[1])) for design in DESIGNS}
        return {"rows": rows, "parts": parts, "driven": driven()}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check the forms against driven ranks, and that no paper's own design is faster than the best."""
        for what, (form, real) in modelled["driven"].items():
            yield within(f"closed forms over 1,024 driven ranks, {what}", form / real, 1.0, 0.2)
        yield holds("the best is never slower", all(row["best"] <= row["own"] * 1.001 for row in modelled["rows"]))

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the gains on the papers' own machines."""
        gains = {
            d.title: [row["own"] / row["best"] for row in modelled["rows"] if row["system"] == d.title][:2]
            for d in (*DESIGNS, FITTED_RATE)
        }
        return "", "gain at 1,024, 100,000 ranks: " + "; ".join(
            f"{k} {a:.2f}x, {b:.2f}x" for k, (a, b) in gains.items()
        )

    def table(self, measured: Data, modelled: Data) -> Iterator[str]:
        """Yield the table of gains, and that of the parts of a present cluster's best."""
        columns = "system, net, images a rank", "its design", "machine", "ranks", "its design, ms", "best, ms", "gain"
        columns += "computing alone, ms", "best way"
        yield f"| {' | '.join(columns)} |"
        yield "|---" * len(columns) + "|"
        for row in modelled["rows"]:
            one = next(one for one in (*DESIGNS, FITTED_RATE) if one.title == row["system"])
            own, ours = row["own"], row["best"]
            cells = f"{one.title}, {one.net}, {one.batch}", one.words, row["machine"], f"{row['ranks']:,}"
            cells += f"{own:.4g}", f"{ours:.4g}", f"{own / ours:.2f}", f"{row['alone']:.4g}", row["how"]
            yield f"| {' | '.join(cells)} |"
        yield "\nWhat still pays on a present cluster: times as long as the best, without a part of it, on 100,000"
        yield "ranks of `ndr`.\n"
        yield f"| without | {' | '.join(modelled['parts'])} |"
        yield "|---|" + "---|" * len(modelled["parts"])
        for part in PARTS:
            yield f"| {part} | {' | '.join(f'{each[part]:.2f}' for each in modelled['parts'].values())} |"
        yield "\nSo, where computing does not hide all messages, swCaffe's allreduce by halving pays most, then buckets"
        yield "of many megabytes. S-Caffe's overlap pays less, and its hierarchical trees nothing over binomial ones."

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the gains, and what remains without a part."""
        left, right = figure.subplots(1, 2)
        titles = [design.title for design in DESIGNS]
        colours = iter((OURS, MODEL, OTHER, "grey"))
        for i, (is_ndr, ranks) in enumerate((is_ndr, ranks) for is_ndr in (False, True) for ranks in COUNTS):
            rows = [r for r in modelled["rows"] if (r["machine"] == NDR) == is_ndr and r["ranks"] == ranks]
            gains = [row["own"] / row["best"] for row in rows if row["system"] in titles]
            places = [k + 0.2 * (i - 1.5) for k in range(len(titles))]
            label = f"{ranks:,} ranks of {'a present cluster' if is_ndr else 'its machine'}"
            left.bar(places, gains, 0.18, color=next(colours), label=label)
        left.set(ylabel="its own design over the best, times as long", ylim=(0, 11))
        for i, (part, colour) in enumerate(zip(("no overlap", ALLREDUCE, BUCKETS), (OURS, MODEL, OTHER), strict=True)):
            places = [k + 0.25 * (i - 1) for k in range(len(titles))]
            heights = [each[part] for each in modelled["parts"].values()]
            right.bar(places, heights, 0.22, color=colour, label=f"a present cluster: {part}")
        right.set(ylabel="times as long as the best, 100,000 ranks", ylim=(0, 8.5))
        for axes in (left, right):
            axes.set_xticks(range(len(titles)), titles, fontsize=8)
            axes.axhline(1, color=PAPER, linewidth=0.8)
            axes.legend(frameon=False, fontsize=8, loc="upper right")


@cache
def driven() -> dict[str, tuple[float, float]]:
    """Return the milliseconds of GoogLeNet on 1,024 ranks by closed forms, and of driven ranks."""
    small, cluster = net("googlenet", 8), find_cluster(NDR)
    times = replace(of_device(small, cluster), record_bytes=0.0)
    found = {}
    for sync in ("reduce-bcast", "allreduce"):
        run = Run("SC-OBR", sync, reduce="auto", bucket_bytes="16M")
        form = estimate(small, cluster, run, times, ClosedForms(cluster.links, COUNTS[0]))
        real = simulate_iteration(small, COUNTS[0], cluster, run, times=times)
        found[f"SC-OBR {sync} on {NDR}"] = 1e3 * form.seconds, 1e3 * real.seconds
    return found


FIGURE = BEYOND = Beyond()
