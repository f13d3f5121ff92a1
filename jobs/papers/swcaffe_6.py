"""swCaffe, figure 6: bandwidth between two nodes, and across an over-subscribed uplink."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

import lab
from figure import OURS, PAPER, STATED, Check, Data, Figure, Input, within

NODES, SUPERNODE, RATE = 8, 4, 200  # nodes, nodes of a supernode, Mbit/s of a node and of an uplink
ROUNDS = 3
LINK = str(lab.JOBS / "lab/link.py")
PLACES = {"inside": [(0, 1)], "across, one pair": [(0, 4)], "across, all nodes": [(k, k + SUPERNODE) for k in range(4)]}


def start(stack: ExitStack, node: int, *words: str) -> subprocess.Popen[str]:
    """Start link.py on a node; return once it has printed a line."""
    command = [lab.NETLAB, "sh", str(node), sys.executable, LINK, *words]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = stack.enter_context(subprocess.Popen(command, env=lab.environment(), text=True, **pipes))
    assert process.stdout is not None
    stack.callback(process.kill)  # a server accepts for ever
    if not process.stdout.readline():
        raise RuntimeError(f"{' '.join(command)} has ended")
    return process


def slowest(pairs: Sequence[tuple[int, int]]) -> float:
    """Return the seconds of a byte of the slowest pair; all begin at once, over warm connections."""
    with ExitStack() as stack:
        clients = []
        for server, client in pairs:
            start(stack, server, "serve")
            clients.append(start(stack, client, f"nl{server}", "wait"))
        for one in clients:
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
        return max(float(one.communicate()[0]) for one in clients)


class OverSubscribed(Figure):
    """The bandwidth that the renumbered allreduce saves."""

    id, rank = "swcaffe-6", 11
    title = "Bandwidth between two nodes, inside a supernode and across"
    source = "swCaffe, figure 6, section II.B"
    paper = "about a quarter across supernodes"
    inputs = (Input("across / inside", 0.25, "of the bandwidth", STATED, "section II.B"),)
    unexplained = (
        "Bandwidths for each message size are a curve alone.",
        "Earlier runs, quiet ones too, had 0.29 to 0.30 with all nodes: the pairs began one after the other, as their "
        "processes came up, and the last had the uplink to itself. They now begin at once.",
    )

    def measure(self) -> Data:
        """Return the median bytes per second by place, of rounds in which the places take turns."""
        shape = str(NODES), f"{RATE}mbit", "0", str(NODES // SUPERNODE), f"{RATE}mbit"
        with lab.cluster(*shape):
            rounds = [[slowest(pairs) for pairs in PLACES.values()] for _ in range(ROUNDS)]
        return {name: 1 / median(each) for name, each in zip(PLACES, zip(*rounds, strict=True), strict=True)}

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
