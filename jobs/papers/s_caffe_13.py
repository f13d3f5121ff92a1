"""S-Caffe, figure 13: a broadcast that hides behind the forward pass.

jobs/bench/overlap.py runs the workflows over the emulated cluster. Layers take the times of a profile, so that two
cores suffice; its rate is set so that communication takes the share of SC-B's iteration that table 2 has.
"""

from __future__ import annotations

from typing import Any

import lab
import replays
from drawing import MODEL, OURS, PAPER, bars
from figure import DERIVED, STATED, Data, Figure, Input, M
from replays import ALONE, SC_B, SC_OB
from verdicts import EXCEEDED, SHAPE, Judged, compared

NET, BATCH, NODES, RATE = "googlenet", 16, 4, 800  # RATE: Mbit/s


class Overlap(Figure):
    """SC-OB against SC-B, without the reduce."""

    id, tag = "s-caffe-13", M
    inputs = (
        Input(
            "share",
            40.6 / 113.6,
            "of SC-B's iteration",
            DERIVED,
            "table 2: aggregation over total; of all messages here",
        ),
        Input("saved", 15, "%", STATED, "section 6.6"),
    )

    def measure(self) -> Data:
        """Return overlap.py's ms by workflow: of iterations, of rank 0's sums, and of the rest."""
        with lab.cluster(str(NODES), f"{RATE}mbit"):
            rows = f"{SC_B},{SC_OB}"
            return replays.replayed(f"share:{self.value('share'):g}", rows, NET, BATCH, "--iterations", "1")

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge what SC-OB saves of an iteration without its sums; more than the paper's is an input's share."""
        found = saved(measured["rest"])
        verdict = compared(found, self.value("saved"), 0.1, floor=0.0)
        hidden = 100 * part_hidden(measured["rest"])
        words = f"{found:.0f} %, {hidden:.0f} % of the broadcast hidden; 4 nodes, layers' times replayed"
        return Judged(SHAPE if verdict == EXCEEDED else verdict, words)

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw the ms of propagation, forward and backward."""
        rest = measured["rest"]
        names = "computing alone", "SC-B", "SC-OB"
        bars(axes, names, [("measured, without the reduce", [rest[row] for row in (ALONE, SC_B, SC_OB)], OURS)])
        least = rest[SC_B] * (1 - self.value("saved") / 100)
        axes.plot([2], [least], "s", color=PAPER, label="paper: 15 % less than SC-B")
        axes.axhline(rest[ALONE], color=MODEL, linestyle=":", label="all hidden")
        axes.set(ylabel="ms of propagation, forward, backward", ylim=(0, 1.35 * rest[SC_B]))
        axes.set_title(f"GoogLeNet on {NODES} nodes, links of {RATE} Mbit/s", fontsize=10)


def saved(rest: dict[str, float]) -> float:
    """Return the percentage of SC-B's time that SC-OB saves."""
    return 100 * (1 - rest[SC_OB] / rest[SC_B])


def part_hidden(rest: dict[str, float]) -> float:
    """Return the part of the broadcast that SC-OB hides."""
    return (rest[SC_B] - rest[SC_OB]) / (rest[SC_B] - rest[ALONE])


FIGURE = Overlap()
