"""S-Caffe, table 2, figure 13 and section 6.6: communication that hides behind computing.

jobs/bench/overlap.py runs the workflows over the emulated cluster. Layers take the times of a profile, so that two
cores suffice; its rate is set so that communication takes the share of SC-B's iteration that table 2 has.

Table 2's designs run on 8 nodes, with an eighth of CaffeNet's width. The reduce alone goes by a design, the broadcast
by the same algorithm in all. Computing is set, by the links' nominal rate, so that SC-B's aggregation has its share.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import lab
import replays
from drawing import bars
from figure import ASSUMED, DERIVED, MODEL, OURS, PAPER, STATED, Check, Data, Figure, Input, holds
from overlap import SUMS
from replays import ALONE, SC_B, SC_OB, SC_OBR, TALKING

from collectives.model import scaffe_row
from collectives.model.clusters import KESCH

NET, BATCH, NODES, RATE = "googlenet", 16, 4, 800  # RATE: Mbit/s
TABLE_2 = {"SC-B": (40.6, 113.6), "CC-8": (28.6, 101.6), "CB-4": (19.8, 92.8), "CB-8": (17.6, 90.6)}
ALGORITHMS = {"SC-B": "binomial", "CC-8": "cc-8", "CB-4": "cb-4", "CB-8": "cb-8"}
RANKS, CAFFENET = 160, 60_965_224  # the model's; elements
ORDER, DESIGNS = "order of table 2, SC-B > CC-8 > CB-4 > CB-8", "table 2"
SAME = "on 8 nodes CC-8 and CB-8 are the same schedule, one chain of 8: only noise tells them apart"
NARROW, WIDTH, EIGHT, SLOW = "caffenet", 1 / 8, 8, 200  # of the designs here: net, its layers, nodes, links (Mbit/s)


def designs() -> Data:
    """Return by design the ms of rank 0's iteration: `sums`, in which it waits for the sums, and `rest`, the others."""
    made = replays.net(NARROW, WIDTH)
    once = 8e-6 * made.packed.nbytes / SLOW  # seconds of all gradients on a link
    aggregation, total = TABLE_2["SC-B"]
    binomial = once * (EIGHT - 1).bit_length()
    computing = binomial * (total - aggregation) / aggregation - once  # the rest is a broadcast
    rows, how = {name: SUMS + each for name, each in ALGORITHMS.items()}, ("--width", str(WIDTH), "--iterations", "1")
    with lab.cluster(str(EIGHT), f"{SLOW}mbit"):
        profile = f"flops:{replays.rate_of(made, computing):.6g}"
        found = replays.replayed(profile, ",".join(rows.values()), NARROW, 1, *how)
    return {what: {name: found[what][row] for name, row in rows.items()} for what in ("sums", "rest")}


def falls(values: Iterable[float]) -> bool:
    """Return whether no value is above the one before it."""
    found = list(values)
    return found == sorted(found, reverse=True)


class Overlap(Figure):
    """SC-OB and SC-OBR against SC-B."""

    id, rank = "s-caffe-13", 3
    title = "Overlapped broadcast (SC-OB) and reduce (SC-OBR)"
    source = "S-Caffe, table 2, figure 13, section 6.6"
    paper = "SC-OB up to 15 %, SC-OBR 20 % (8 GPUs), 12 % (16); table 2: 40.6, 28.6, 19.8, 17.6 aggregation"
    inputs = (
        Input("share", 40.6 / 113.6, "of SC-B's iteration", DERIVED, "table 2: aggregation over total"),
        Input("rest", 73.0, "", DERIVED, "table 2: total minus aggregation, in each row"),
        Input("CaffeNet", 4 * CAFFENET, "bytes", DERIVED, "the net's parameters"),
        Input("table 2's ranks", RANKS, "", ASSUMED, "the paper does not say"),
        Input("CB-8's gain", 2.3, "", STATED, "table 2"),
    )
    unexplained = (
        "Table 2's share is the aggregation's; here all communication has it, since figure 13 leaves the reduce out.",
        "Where 36 % hides behind computing, an iteration gains up to 56 %, or 22 % if the broadcast alone hides, half "
        "of it: the paper's 20 and 15 % hide less. SC-OBR here hides nearly all, and so is above the range.",
        "On 8 nodes CC-8 and CB-8 are one chain of 8, the same schedule: they differ from 24 ranks on, which are not "
        "here. In table 2 CC-8 takes 1.6 times as long as CB-8, and longer than CB-4.",
        "On 8 nodes the rest of an iteration is nearly constant by construction: it holds no reduce, and all rows have "
        "the same layers and broadcast. Rank 0's sums have its wait for the rank that gets the broadcast last.",
        "CC-8's speedup is 40.6 / 28.6 = 1.42, not 1.47.",
        "Table 2 does not say its ranks or its message. From 16 to 160 ranks, with CaffeNet and GoogLeNet, the model "
        "has SC-B > CB-4 > CB-8 as table 2; only CC-8 is out of place, the fastest instead of the third. Start-up or "
        "skew of each hop must be a term.",
        "20 % of SC-OBR is CaffeNet at 8 GPUs in section 6.6, GoogLeNet at 160 in the conclusion.",
    )

    def measure(self) -> Data:
        """Return the rate that was set, the ms by workflow, and those by table 2's designs."""
        rows, how = f"{SC_B},{SC_OB},{SC_OBR}", ("--iterations", "1")
        with lab.cluster(str(NODES), f"{RATE}mbit"):
            found = replays.replayed(f"share:{self.value('share'):g}", rows, NET, BATCH, *how, talking=True)
        return found | {DESIGNS: designs()}

    def model(self, measured: Data) -> Data:
        """Return the ms of CaffeNet's reduce on cluster A by table 2's designs, and those of the replayed layers."""
        found: Data = {d: 1e3 * scaffe_row(a, KESCH, RANKS, CAFFENET).seconds for d, a in ALGORITHMS.items()}
        if not measured:
            return {"aggregation": found}
        layers = replays.times_at(replays.net(NET), measured["rate"], BATCH)
        return {"aggregation": found, "computing": 1e3 * layers.computing}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check the gains, their bound, the constant rest, and the order of table 2."""
        yield holds(f"{ORDER}, modelled", falls(modelled["aggregation"].values()))
        if DESIGNS in measured:
            yield from table_checks(**measured[DESIGNS])
        if measured:
            ms = measured["ms"]
            talking = ms[SC_B] - ms[ALONE]
            share = self.value("share")
            what = "communication, share of SC-B's iteration (the layers' rate is set for this)"
            yield Check(what, talking / ms[SC_B], share - 0.05, share + 0.05, fitted=True)
            yield Check("gain of SC-OB over SC-B, %", gain(ms, SC_OB), 5, 20)
            yield Check("gain of SC-OBR over SC-B, %", gain(ms, SC_OBR), 8, 25)
            what = "SC-OB over its least: SC-B minus what can hide, the shorter of the forward pass and the broadcast"
            computing = modelled["computing"]
            yield Check(what, ms[SC_OB] / least(measured, computing), low=1.0)
            bound = max(computing, ms[TALKING])
            yield Check("SC-OBR over the greater of computing and communicating", ms[SC_OBR] / bound, low=1.0)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the gains and the order."""
        text = ", ".join(f"{name} {ms:.0f}" for name, ms in modelled["aggregation"].items())
        model = f"{text} ms: CaffeNet's reduce, 160 ranks"
        if not measured:
            return "", model
        ms = measured["ms"]
        share = 1 - ms[ALONE] / ms[SC_B]
        gains = f"SC-OB {gain(ms, SC_OB):.0f} %, SC-OBR {gain(ms, SC_OBR):.0f} %"
        text = f"{gains}; {NODES} nodes, GoogLeNet, communication {share:.0%}"
        if DESIGNS in measured:
            sums, rest = (measured[DESIGNS][what] for what in ("sums", "rest"))
            each = ", ".join(f"{name} {sums[name]:.0f} of {sums[name] + rest[name]:.0f}" for name in sums)
            text += f"; aggregation on {EIGHT} nodes: {each} ms"
        return text, model

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw iterations by workflow, and table 2 as bars."""
        left, right = figure.subplots(1, 2)
        if measured:
            ms = measured["ms"]
            names = [name for name in (SC_B, SC_OB, SC_OBR) if name in ms]
            left.bar([name.partition(":")[0] for name in names], [ms[name] for name in names], 0.5, color=OURS)
            left.axhline(ms[ALONE], color="grey", linestyle=":", label="computing alone")
            left.legend(frameon=False)
            left.set_ylim(0, 1.25 * max(ms.values()))
        left.set(ylabel="ms of an iteration", title=f"Measured: {NODES} nodes, layers' times replayed")
        paper = [aggregation / TABLE_2["SC-B"][0] for aggregation, _ in TABLE_2.values()]
        model = [ms / modelled["aggregation"]["SC-B"] for ms in modelled["aggregation"].values()]
        rows = [("paper, table 2", paper, PAPER), ("modelled, 160 ranks, rates assumed", model, MODEL)]
        if DESIGNS in measured:
            sums = list(measured[DESIGNS]["sums"].values())
            rows.insert(1, (f"measured, {EIGHT} nodes", [ms / sums[0] for ms in sums], OURS))
        bars(right, rows)
        right.set_xticks(range(len(TABLE_2)), list(TABLE_2))
        right.set(ylabel="aggregation over SC-B's", title="Table 2", ylim=(0, 1.3))


def table_checks(sums: dict[str, float], rest: dict[str, float]) -> Iterable[Check]:
    """Return the checks of table 2's designs on the emulated nodes."""
    what = f"table 2 on {EIGHT} nodes: total minus aggregation, largest over least"
    yield Check(what, max(rest.values()) / min(rest.values()), high=1.03)
    yield Check(f"{ORDER}, {EIGHT} nodes", None, why=SAME)
    others = (ms for name, ms in sums.items() if name != "CC-8")
    yield holds(f"order of table 2 without CC-8, {EIGHT} nodes", falls(others))


def least(found: Data, computing: float) -> float:
    """Return the least ms of SC-OB: its broadcast hides in the forward pass, a third of the layers' `computing` ms."""
    ms, sums = found["ms"], found.get("sums", {}).get(SC_B, 0.0)  # which former results do not have apart
    broadcast = ms[SC_B] - ms[ALONE] - sums  # computing alone has the update too
    return ms[SC_B] - min(computing / 3, broadcast)


def gain(ms: dict[str, float], name: str) -> float:
    """Return by how many percent SC-B's iteration is longer."""
    return 100 * (ms[SC_B] / ms[name] - 1)


FIGURE = Overlap()
