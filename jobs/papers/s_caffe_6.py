"""S-Caffe, section 6.6: SC-OBR against SC-B for CaffeNet on 8 and 16 GPUs.

Modelled by the phases of sections 4.1 to 4.3: SC-B is computing, broadcast and reduce, one after the other; SC-OBR is
the longer of the forward pass and the broadcast, then the longer of the backward pass and the reduce. Computing is
fitted on the 20 % of 8 GPUs; half of it is computed on 16.

Measured on 8 nodes of the emulated cluster at table 2's share of communication and at that of the fit; there also on 4
nodes, each with twice the batch. Layers have a quarter of CaffeNet's width: a sixteenth of its bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import lab
import numpy as np
import replays
from drawing import MODEL, OURS, of_paper
from figure import ASSUMED, DERIVED, FITTED, STATED, Data, Figure, Input, S
from replays import ALONE, SC_B, SC_OBR
from verdicts import Found, Judged, judged

from collectives.model import tuned_row
from collectives.model.clusters import KESCH

NET, CAFFENET, BATCH = "caffenet", 60_965_224, 32  # elements; images of each of 8 nodes, which only scale the rate
NODES, RATE, WIDTH, BUCKET = 8, 400, 0.25, "256K"  # RATE: Mbit/s; a sixteenth of the bytes, of a bucket too
VERBS = "bcast", "reduce"
LESS, MORE, FEWER = "table 2's share", "share of the fall", "the same, 4 nodes"  # keys of what is kept
TREES, ERROR = ("binomial", "chain", "cb-8", "cb-4"), 0.2


def saved(computing: float, broadcast: float, reduce: float) -> float:
    """Return the percentage of SC-B's time that SC-OBR saves; backward takes twice the forward."""
    hidden = max(computing / 3, broadcast) + max(2 * computing / 3, reduce)
    return 100 * (1 - hidden / (computing + broadcast + reduce))


def fitted(wanted: float, broadcast: float, reduce: float) -> float:
    """Return the computing, shorter than communicating, with which so many percent are saved."""
    low, high = 0.0, 1.5 * min(2 * broadcast, reduce)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if saved(middle, broadcast, reduce) < wanted else (low, middle)
    return low


class Gain(Figure):
    """What SC-OBR saves on more GPUs."""

    id, tag = "s-caffe-6", S
    inputs = (
        Input("saved on 8", 20, "%", STATED, "section 6.6, taken as a share of SC-B's time"),
        Input("saved on 16", 12, "%", STATED, "section 6.6"),
        Input("CaffeNet", 4 * CAFFENET, "bytes", DERIVED, "the net's parameters"),
        Input("computing", 0.25, "of communicating on 8 GPUs", FITTED, "on 20 %, and shorter than communicating"),
        Input("alpha", KESCH.alpha_in, "s", ASSUMED, "a kernel start and a rendezvous, in a node", 1e-5, 1e-4),
        Input("error", ERROR, "of what is saved", ASSUMED, "less than the phases are off by on 8 nodes here"),
    )

    def measure(self) -> Data:
        """Return by place the ms of overlap.py's rows and the layers' rate."""
        shares = {LESS: 40.6 / 113.6, MORE: 1 / 1.2}
        with lab.cluster(str(NODES), f"{RATE}mbit"):
            found = {name: replayed(f"share:{share:g}", BATCH) for name, share in shares.items()}
        with lab.cluster(str(NODES // 2), f"{RATE}mbit"):
            return found | {FEWER: replayed(f"flops:{found[MORE]['rate']:g}", 2 * BATCH)}

    def model(self, measured: Data) -> Data:
        """Return what is saved on 16 GPUs, and the computing over the communicating on 8 and 16."""
        return {"16": vars(self.spread(self.on_16)), "x": self.places()}

    def talking(self, ranks: int) -> tuple[float, float]:
        """Return the seconds of CaffeNet's broadcast and of its reduce on cluster A."""
        links = replace(KESCH, alpha_in=self.value("alpha"))
        broadcast, reduce = (tuned_row(verb, links, ranks, CAFFENET, algorithms=TREES).seconds for verb in VERBS)
        return broadcast, reduce

    def on_16(self) -> float:
        """Return what is saved on 16 GPUs with the computing that is fitted on 8."""
        computing = fitted(self.value("saved on 8"), *self.talking(8))
        return saved(computing / 2, *self.talking(16))

    def places(self) -> list[float]:
        """Return the computing over the communicating, on 8 and 16 GPUs."""
        computing = fitted(self.value("saved on 8"), *self.talking(8))
        return [computing / sum(self.talking(8)), computing / 2 / sum(self.talking(16))]

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge what is saved on 16 GPUs."""
        found = Found(**modelled["16"])
        here = ", ".join(f"{of(measured[name]):.0f} %" for name in (FEWER, MORE) if measured)
        text = f"{found.words(' %')}, computing fitted on the 20 %; measured on 4 and 8 emulated nodes: {here}"
        return Judged(judged(found, self.value("saved on 16"), ERROR, floor=0.0), text)

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw what is saved against the computing beside the communicating."""
        x = np.geomspace(0.05, 20, 200)
        axes.plot(x, [saved(c, 0.5, 0.5) for c in x], "--", color=MODEL, label="phases of section 4, all hidden")
        of_paper(
            axes, modelled["x"], [self.value("saved on 8"), self.value("saved on 16")], "20 % on 8 (fitted), 12 % on 16"
        )
        at = [one["ms"][ALONE] / (one["ms"][SC_B] - one["ms"][ALONE]) for one in measured.values()]
        axes.plot(at, [of(one) for one in measured.values()], "o", color=OURS, label="measured, 4 and 8 emulated nodes")
        axes.set(xlabel="computing over communicating", ylabel="time that SC-OBR saves, %", xscale="log", ylim=(0, 75))


def replayed(profile: str, batch: int) -> Data:
    """Return what overlap.py finds."""
    how = "--width", str(WIDTH), "--bucket-bytes", BUCKET
    return replays.replayed(profile, f"{SC_B},{SC_OBR}", NET, batch, *how)


def of(one: Data) -> float:
    """Return the percentage of SC-B's time that SC-OBR saves, measured."""
    return 100 * (1 - float(one["ms"][SC_OBR] / one["ms"][SC_B]))


FIGURE = Gain()
