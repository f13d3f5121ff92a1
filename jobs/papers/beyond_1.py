"""Beyond each paper: the best way to run its net on its machine, at 1,024 and 100,000 ranks, and on a present cluster.

Iterations are estimated by closed forms (`scaffe.simulation.estimate`), inside one machine by simulated cores. A gain
counts where it is beyond the closed forms' error against driven ranks; 1,024 of each machine are driven here. No paper
has this figure: its checks say whether our own models agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from textwrap import fill
from typing import Any

import best_designs
import best_driven
import best_ideas
import best_inside
import numa_caffe_9
import parax_13
import s_caffe_8
import singlecaffe_6
import swcaffe_10
from best_designs import COUNTS, DESIGNS, footprint
from best_timed import INPUTS, NDR, is_beyond, value
from figure import FITTED, MODEL, OTHER, OURS, PAPER, Check, Data, Figure, Input, within
from numa_nodes import BOXES

from scaffe.simulation import find_cluster
from scaffe.simulation.closed_forms import CHUNKS, SEARCHED
from scaffe.simulation.estimate import SIZES, TRIED
from scaffe.simulation.layer_times import of_device

INSTANCES = {"ParaX": 28, "SingleCaffe": 24}  # of a rank: each has gradients of its own
KINDS = {"inside": "one machine", "weak": "a batch a rank", "divided": "one batch for all", "batch": "another batch"}
COLUMNS = (
    "system, net, images a rank",
    "kind",
    "machine",
    "ranks",
    "its design",
    "its design, ms",
    "best, ms",
    "gain (least to most by the model's error)",
    "beyond the error",
    "computing over best",
    "best way",
)
SHOWN = {"alone": "alone: plain way over it with the idea", "missing": "missing: best way without it over the best"}
TAKEN = (  # what of other figures the rows and the checks depend on, so that a change there is seen here
    (s_caffe_8, "computing"),
    (swcaffe_10, "AlexNet's exchange"),
    (singlecaffe_6, "CIFAR-10, one thread"),
    *((numa_caffe_9, name) for name in ("efficiency", "line, in a node", "line, between nodes", "thread")),
    *((parax_13, name) for name in ("core rate", "core bandwidth", "bandwidth", "barrier", "jitter")),
)
SLOW, FAST = ("ParaX, one instance for each socket", "SingleCaffe, a node at its best")


def taken() -> Iterator[Input]:
    """Yield the inputs of other figures."""
    for module, name in TAKEN:
        (one,) = (one for one in module.FIGURE.inputs if one.name == name)
        yield replace(one, name=f"{module.FIGURE.id}: {name}")


class Beyond(Figure):
    """The best way to run each paper's net, against the paper's own."""

    id, rank = "beyond-1", 90
    slow = True
    title = "The best of this project on each paper's machine, and on a present cluster"
    source = "no figure: all five papers"
    paper = "nothing: none looks beyond its own design"
    is_of_paper = False
    inputs = (
        *INPUTS,
        Input("swCaffe's rate", best_designs.fitted_rate(), "bytes/s", FITTED, "on swcaffe-10's exchange of AlexNet"),
        *taken(),
    )
    unexplained = (
        "NUMA-Caffe, ParaX and SingleCaffe end at one machine and have no design between machines, so that nothing is "
        "gained on it there: the best stands alone. SingleCaffe's design inside its node, slices summed by threads, is "
        "this project's too, and gains nothing by itself.",
        "100,000 ranks, and 1,024 of all machines but swCaffe's and the present one, are more than the machines have "
        "(marked *): they stand for more nodes of the same kind.",
        "The errors are those of estimates against driven ranks, taken as if both ways were off at their most and in "
        "opposite directions. Driven ranks were held against real ones on emulated links only, where they were off by "
        "up to 9 %, and by 17 % with messages of 512 KB (docs/simulate.md). Nothing holds an estimate beyond 1,024 "
        "ranks.",
        "The bounds of the checks against driven ranks come from comparisons of the same kind: the checks are not "
        "independent of them.",
        "S-Caffe's own design has a bucket for each layer here, as section 4.2 has it: on 160 GPUs, with the batch "
        "divided, it takes 150 ms, where s-caffe-8 has 69 with buckets of 32 MB. So a good part of its gains is the "
        "buckets' size.",
        "leaders-NAME has no schedule, so that no rank is driven by it: its time is the sum of the closed forms in a "
        "node and between nodes, one after the other, each of which is held against events. Most of S-Caffe's gains on "
        "cluster-a are by leaders. On GPUs one rank of a node sends; in host memory each rank sends a slice.",
        "Computing alone has the update at its end. SC-OBR updates a bucket once its sum is complete, while the "
        "backward pass goes on, so that the best way can be shorter than computing alone.",
        "The closed forms have no stragglers, no links that others use, and no reading. swCaffe's measured exchange is "
        "9 to 29 times that of nominal rates (swcaffe-10): there overlap gains more, as with the fitted rate.",
        "Divided, S-Caffe's batch is that of s-caffe-8, whose computing is fitted there; past the last row a rank has "
        "less than an image. NUMA-Caffe's batch of 256 is divided too.",
        "NUMA-Caffe's solvers are simulated with the numbers of numa-caffe-9, whose own model has the remote bytes of "
        "the tree; the simulation has the threads' barriers and jitter, and no cost of remote memory but for instances "
        "that cover several domains.",
        "Each machine's numbers are in scaffe/simulation/described, each with its origin.",
    )

    def model(self, measured: Data) -> Data:
        """Return the rows of gains, the ideas, the driven cases, and numbers that must agree with other figures."""
        return modelled_once()

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check estimates against driven ranks, memories, and numbers that two models give."""
        for what, (form, real, error) in modelled["driven"].items():
            yield within(f"closed forms over 1,024 driven ranks, {what}", form / real, 1.0, error)
        for what, (found, limit) in modelled["memory"].items():
            yield Check(f"GB of a rank, {what}", found / 1e9, high=limit / 1e9)
        for what, (one, other) in modelled["sources"].items():
            fitted = what.startswith(FAST)  # flops are derived from the other
            yield within(f"s of an iteration by two models, {what}", one / other, 1.0, 0.2, fitted=fitted)
        yield Check("best way at 100,000 ranks over 1,024, least", min(growth(modelled["rows"])), low=1.0)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the gains over each paper's own design, those beyond the model's error first."""
        rows = [one for one in gained(modelled["rows"]) if one["kind"] != "batch"]
        texts: dict[bool, list[str]] = {True: [], False: []}
        for one in rows:
            texts[one["beyond"]].append(f"{label(one)} {one['gain'][0]:.2f}x")
        head = f"{len(texts[True])} of {len(rows)} gains exceed the closed forms' error against simulated ranks"
        return "", f"{head}: {'; '.join(texts[True])}; within it: {'; '.join(texts[False])}"

    def table(self, measured: Data, modelled: Data) -> Iterator[str]:
        """Yield the table of gains, that of the ideas, and what was searched."""
        yield from heads(COLUMNS)
        for one in modelled["rows"]:
            yield cells(of_row(one))
        yield "\n\\* more ranks than the machine has. Where a paper has no design between machines, there is no gain."
        yield "\nWhat still pays on a present cluster, `ndr`: times as long without each idea, by the rules of"
        yield "`jobs/papers/best_ideas.py`. Alone: the plain way over the same with the idea. Missing: the best way"
        yield "without the idea over the best. Bold: beyond the model's error.\n"
        yield from heads(("idea", *(f"{design.title}, {n:,}" for design in DESIGNS for n in COUNTS)))
        for name in dict.fromkeys(gain["idea"] for gain in modelled["ideas"]["gains"]):
            each = [gain for gain in modelled["ideas"]["gains"] if gain["idea"] == name]
            for what in ("alone", "missing"):
                yield cells([f"{name}, {what}", *(bold(gain[what]) for gain in each)])
        yield ""
        yield from heads(("idea", "paper", "on a present cluster"))
        yield from map(cells, best_ideas.sentences(modelled["ideas"]))
        yield from searched()

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the gains with the model's error, and those of the ideas on a present cluster."""
        figure.set_size_inches(10, 5.6)
        left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
        rows = [one for one in gained(modelled["rows"]) if one["kind"] != "batch"][::-1]
        draw_gains(left, [(label(one), one["gain"], one["beyond"]) for one in rows], OURS)
        left.set(xlabel="own design over the best (* more ranks than devices)")
        left.set_title("Modelled: gain over each paper's own design", fontsize=9)
        draw_ideas(right, modelled["ideas"]["gains"])


@cache
def modelled_once() -> Data:
    """Return the figure's model."""
    driven = {
        f"{case.run.workflow} {case.run.sync}, {case.design.net} on {case.cluster}": best_driven.driven(case)
        for case in best_driven.CASES
    }
    return {
        "rows": list(best_designs.rows()),
        "ideas": best_ideas.model(),
        "driven": driven,
        "memory": memory(),
        "sources": sources(),
    }


def memory() -> dict[str, tuple[float, float]]:
    """Return the bytes of training a rank's batch, and those of its device, by net and machine."""
    found = {}
    for one in DESIGNS:
        if one.memory:
            needed = footprint(one.net, one.batch, INSTANCES.get(one.title, 1))
            found[f"{one.title} on {one.cluster}, {one.batch} images"] = needed, value(f"{one.memory}: memory")
        found[f"{one.title} on {NDR}, {one.batch} images"] = footprint(one.net, one.batch), value("H100: memory")
    return found


def sources() -> dict[str, tuple[float, float]]:
    """Return the seconds of an iteration of a machine by two models, of which one is another figure's."""
    figure, found = numa_caffe_9.FIGURE, {}
    for name in best_inside.SOLVERS:
        own = figure.seconds("NUMA", best_inside.NET, BOXES[name], BOXES[name].nodes)
        found[f"NUMA-Caffe on {name}: simulated over numa-caffe-9"] = best_inside.of_solvers(name)[0].seconds, own
    parax, single = best_designs.PARAX, best_designs.SINGLE
    rate = parax_13.rate(best_inside.RESNET, False, 56, 28, parax.batch)
    found[f"{SLOW}: 8280.toml over parax-13"] = on_device(parax), 2 * parax.batch / rate
    thread, gain = map(singlecaffe_6.FIGURE.value, ("CIFAR-10, one thread", "gain"))
    found[f"{FAST}: tianhe.toml over singlecaffe-6's thread by {gain:g}"] = on_device(single), thread / gain
    return found


def on_device(design: best_designs.Design) -> float:
    """Return the seconds of a batch on a device of the design's cluster."""
    return of_device(best_designs.net(design.net, design.batch), find_cluster(design.cluster)).computing


def gained(rows: Iterable[Data]) -> list[Data]:
    """Return the rows with a design of the paper's."""
    return [one for one in rows if one["gain"]]


def growth(rows: Iterable[Data]) -> list[float]:
    """Return the best way's time at 100,000 ranks over that at 1,024, by system and machine."""
    times: dict[tuple[str, str], list[float]] = {}
    for one in rows:
        if one["kind"] == "weak" and one["ranks"] in COUNTS:
            times.setdefault((one["system"], one["machine"]), []).append(one["best"])
    return [many / few for few, many in times.values()]


def of_row(one: Data) -> list[str]:
    """Return the cells of a row of gains."""
    own = f"{one['own']:.4g}" if one["gain"] else "-"
    gain = "{:.2f} ({:.2f} to {:.2f})".format(*one["gain"]) if one["gain"] else "-"
    beyond = ("yes" if one["beyond"] else "no") if one["gain"] else "-"
    batch = f"{one['batch']} in all" if one["kind"] == "inside" else f"{one['batch']}"
    return [
        f"{one['system']}, {one['net']}, {batch}", KINDS[one["kind"]], one["machine"], ranks_of(one), one["words"],
        own, f"{one['best']:.4g}", gain, beyond, f"{one['alone'] / one['best']:.2f}", one["how"],
    ]  # fmt: skip


def ranks_of(one: Data) -> str:
    """Return a row's ranks, with a mark if the machine has fewer."""
    text = f"{one['ranks']:,}"
    return f"{text}\\*" if one["exceeds"] else text


def searched() -> Iterator[str]:
    """Yield what the best is the best of, and what is not searched."""
    workflows = dict.fromkeys(run.workflow for run in TRIED)
    yield f"\nThe best of: workflows {', '.join(workflows)}; one root, which reduces and broadcasts, or all ranks,"
    yield f"by an allreduce; buckets of {', '.join(SIZES)} bytes (0: a layer's); algorithms"
    yield f"{', '.join(SEARCHED)};"
    yield f"trees' messages of {', '.join(f'{size >> 10} KB' for size in CHUNKS)}, or whole. Inside a machine: the"
    yield f"sizes of an instance that leave no core idle (ParaX: {', '.join(map(str, parax_13.SIZES))} cores) and"
    yield f"the gathers {', '.join(best_inside.GATHERS)}.\n"
    yield "Not searched: several roots and a sharded update, which this project has not; NCCL's own algorithms, which"
    yield "have no closed form here; `kary-K`, `cc`, `ccb` and other chain sizes; exchanges in messages other than"
    yield "4 MB; two-tree where ranks share an adapter, whose crowding has no closed form; broadcasts in bfloat16;"
    yield "delays of instances; batches other than those shown. A message takes what is fastest by itself, with and"
    yield "without leaders, or the paper's own; no other ones are tried together."


def heads(columns: Sequence[str]) -> Iterator[str]:
    """Yield a table's first two lines."""
    yield cells(columns)
    yield "|---" * len(columns) + "|"


def cells(texts: Iterable[str]) -> str:
    """Return a table's line."""
    return f"| {' | '.join(texts)} |"


def bold(gain: Sequence[float]) -> str:
    """Return a gain, in bold if beyond the model's error."""
    return f"**{gain[0]:.2f}**" if is_beyond(gain) else f"{gain[0]:.2f}"


def label(one: Data) -> str:
    """Return a row's name in the picture."""
    more = ", divided" if one["kind"] == "divided" else ""
    return f"{one['system']}{more}: {one['machine']}, {one['ranks']:,}{'*' * one['exceeds']}"


def draw_gains(axes: Any, rows: Sequence[tuple[str, Sequence[float], bool]], colour: str) -> None:
    """Draw a bar for each gain, hollow where the error, its whisker, allows none."""
    for i, (_, (gain, least, most), beyond) in enumerate(rows):
        look = {"color": colour} if beyond else {"facecolor": "white", "edgecolor": colour}
        axes.barh(i, gain - 1, 0.7, left=1, **look)
        axes.errorbar(gain, i, xerr=[[gain - least], [most - gain]], color="grey", capsize=2, linewidth=0.8)
    axes.plot([], [], "s", color=colour, label="beyond the model's error (whiskers)")
    axes.plot([], [], "s", color=colour, markerfacecolor="white", label="within it")
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows], fontsize=7)
    axes.axvline(1, color=PAPER, linewidth=0.8)
    axes.set(xscale="log", ylim=(-0.7, len(rows) + 1))
    axes.set_xticks((0.5, 1, 2, 4, 8), ("0.5", "1", "2", "4", "8"))
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=7, loc="upper right")


def draw_ideas(axes: Any, gains: Sequence[Data]) -> None:
    """Draw a point for each net and number of ranks, filled where beyond the error, alone and in the best way."""
    names = list(dict.fromkeys(gain["idea"] for gain in gains))[::-1]
    for what, colour, shift in (("alone", MODEL, 0.15), ("missing", OTHER, -0.15)):
        for beyond in (True, False):
            some = [gain for gain in gains if is_beyond(gain[what]) == beyond]
            at = [names.index(gain["idea"]) + shift for gain in some]
            face = colour if beyond else "white"
            found = [gain[what][0] for gain in some]
            axes.plot(found, at, "o", color=colour, markerfacecolor=face, label=SHOWN[what] if beyond else "")
    axes.plot([], [], "o", color="grey", markerfacecolor="white", label="hollow: within the model's error")
    axes.set_yticks(range(len(names)), [fill(name, 24) for name in names], fontsize=7)
    axes.plot((1, 1), (-0.6, len(names) - 0.5), color=PAPER, linewidth=0.8)
    axes.set(
        xscale="log",
        xlabel="times as long without it, five nets",
        xlim=(0.9, 8),
        ylim=(-0.6, len(names) + 0.8),
    )
    axes.set_xticks((1, 2, 4, 8), ("1", "2", "4", "8"))
    axes.minorticks_off()
    axes.set_title("Modelled: ideas on a present cluster", fontsize=9)
    axes.legend(frameon=False, fontsize=7, loc="upper right")


FIGURE = BEYOND = Beyond()
