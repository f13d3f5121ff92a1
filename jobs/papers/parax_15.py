"""ParaX, figure 16: the update of n instances by a gradient server, a parameter server and a ring, on one machine.

All three are threads of one process over arrays in memory (jobs/bench/gathers.py): copies and additions are real, and
nothing goes via sockets.
"""

from __future__ import annotations

import os
from typing import Any

from drawing import MODEL, OTHER, OURS, curves
from figure import ASSUMED, DERIVED, Data, Figure, Input, M
from verdicts import DIFFERS, REPRODUCED, SHAPE, Judged

MUCH = 2 / 3  # of the others' latency: "much lower"
COUNTS, ELEMENTS, TURNS = tuple(range(2, 9)), 25_600_000, 5
GS, PS, RING = "server", "parameter server", "ring"
COLOURS = {GS: OURS, PS: MODEL, RING: OTHER}


class GradientServer(Figure):
    """The update of n instances in three ways."""

    id, tag = "parax-15", M
    inputs = (
        Input("parameters", ELEMENTS, "elements", DERIVED, "ResNet-50"),
        Input("instances", COUNTS[-1], "threads at most, on 2 cores", ASSUMED, "1 to 54 on 54 cores in the paper"),
        Input("much lower", MUCH, "of the others' latency at most", ASSUMED, "no number"),
    )

    def measure(self) -> Data:
        """Return milliseconds by way and number of instances."""
        import gathers

        found: Data = {"ms": {way: [] for way in COLOURS}, "cores": len(os.sched_getaffinity(0))}
        for n in COUNTS:
            places = gathers.place(str(n), gathers.read_topology(), oversubscribe=True)
            for name, make in gathers.ways(n, ELEMENTS, [one.domain for one in places]):
                if name in COLOURS:
                    found["ms"][name].append(1e3 * gathers.timed(make(), places, TURNS)[0])
        return found

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge whether the server is much the fastest at every count, or at least the fastest."""
        server, texts, worst = measured["ms"][GS], [], 0.0
        for way in (PS, RING):
            ratios = [a / b for a, b in zip(server, measured["ms"][way], strict=True)]
            texts.append(f"{min(ratios):.2f} to {max(ratios):.2f} of the {way}'s")
            worst = max(worst, *ratios)
        return Judged(
            REPRODUCED if worst <= MUCH else SHAPE if worst < 1 else DIFFERS, f"{', '.join(texts)}; 2 to 8 instances"
        )

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw latency against the number of instances."""
        rows = {f"{way}, measured": each for way, each in measured["ms"].items()}
        curves(axes, COUNTS, rows, COLOURS.values(), "o-")
        axes.plot([], [], " ", label="paper: server always lowest, no numbers")
        axes.set(xlabel=f"instances, threads on {measured['cores']} cores", ylabel="ms of an update", ylim=(0, None))


FIGURE = GradientServer()
