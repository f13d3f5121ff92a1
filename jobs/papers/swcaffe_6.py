"""swCaffe, figure 6: bandwidth between two nodes, and across an over-subscribed uplink."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lab
from figure import OURS, PAPER, STATED, Check, Data, Figure, Input, within

NODES, SUPERNODE, RATE = 8, 4, 200  # nodes, nodes of a supernode, Mbit/s of a node and of an uplink
LINK = str(lab.JOBS / "lab/link.py")
PLACES = {"inside": [(0, 1)], "across, one pair": [(0, 4)], "across, all nodes": [(k, k + SUPERNODE) for k in range(4)]}


def seconds_per_byte(pair: tuple[int, int]) -> float:
    """Return the seconds of a byte while two nodes send to each other."""
    serve = [lab.NETLAB, "sh", str(pair[0]), sys.executable, LINK, "serve"]
    with subprocess.Popen(serve, env=lab.environment(), stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        server.stdout.readline()
        return float(lab.output(lab.NETLAB, "sh", str(pair[1]), sys.executable, LINK, f"nl{pair[0]}"))


def slowest(pairs: Sequence[tuple[int, int]]) -> float:
    """Return the seconds of a byte of the slowest pair, all at once."""
    with ThreadPoolExecutor(len(pairs)) as pool:
        return max(pool.map(seconds_per_byte, pairs))


class OverSubscribed(Figure):
    """The bandwidth that the renumbered allreduce saves."""

    id, rank = "swcaffe-6", 11
    title = "Bandwidth between two nodes, inside a supernode and across"
    source = "swCaffe, figure 6, section II.B"
    paper = "about a quarter across supernodes"
    inputs = (Input("across / inside", 0.25, "of the bandwidth", STATED, "section II.B"),)
    unexplained = ("Bandwidths for each message size are a curve alone.",)

    def measure(self) -> Data:
        """Return bytes per second by place."""
        shape = str(NODES), f"{RATE}mbit", "0", str(NODES // SUPERNODE), f"{RATE}mbit"
        with lab.cluster(*shape):
            return {name: 1 / slowest(pairs) for name, pairs in PLACES.items()}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check the share of the bandwidth."""
        if measured:
            inside, alone, all_nodes = (measured[name] for name in PLACES)
            yield within("across / inside, all nodes at once", all_nodes / inside, self.value("across / inside"), 0.15)
            yield within("across / inside, one pair alone", alone / inside, 1.0, 0.15)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the bandwidths."""
        return ", ".join(f"{name} {8e-6 * found:.0f} Mbit/s" for name, found in measured.items()), "-"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw the bandwidths as bars."""
        axes = figure.subplots()
        axes.bar(list(measured), [8e-6 * found for found in measured.values()], 0.5, color=OURS, label="measured")
        axes.axhline(RATE / 4, color=PAPER, linestyle=":", label="paper: a quarter")
        axes.set(ylabel="Mbit/s between two nodes, both ways at once", ylim=(0, 1.3 * RATE))
        axes.legend(frameon=False)


FIGURE = OverSubscribed()
