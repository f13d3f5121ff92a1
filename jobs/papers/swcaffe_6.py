"""swCaffe, figure 6: latency and bandwidth between two nodes by size, and across an over-subscribed uplink."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

import lab
from drawing import plain
from figure import MODEL, OTHER, OURS, PAPER, STATED, Check, Data, Figure, Input, within

NODES, SUPERNODE, RATE = 8, 4, 200  # nodes, nodes of a supernode, Mbit/s of a node and of an uplink
ROUNDS = 3
SIZES = tuple(1 << k for k in (10, 12, 14, 16, 18, 20, 22, 25))  # bytes of a message
LARGE = 4 << 20  # bytes from which the links' bursts of 128 KB hardly count
HOLLOW = {"marker": "s", "markersize": 9, "markerfacecolor": "none"}  # of what another curve covers
LOOKS = {"color": OURS, **HOLLOW}, {"color": OTHER, "marker": "o"}, {"color": MODEL, "marker": "o"}
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


def slowest(pairs: Sequence[tuple[int, int]]) -> list[float]:
    """Return the seconds of a byte by size, of the slowest pair; all begin each size at once, over warm connections."""
    sizes = [str(size) for size in SIZES]
    with ExitStack() as stack:
        clients = []
        for server, client in pairs:
            start(stack, server, "serve", *sizes)
            clients.append(start(stack, client, f"nl{server}", "wait", *sizes))
        return [max(exchanged(clients, last=size == SIZES[-1])) for size in SIZES]


def exchanged(clients: Sequence[subprocess.Popen[str]], last: bool) -> list[float]:
    """Begin an exchange by all clients, which have said that they are warm; return the seconds of a byte of each."""
    for one in clients:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    seconds = [float(one.stdout.readline()) for one in clients if one.stdout]
    for one in clients:
        assert one.stdout is not None
        if not last and not one.stdout.readline():  # warm for the next size
            raise RuntimeError("link.py has ended")
    return seconds


class OverSubscribed(Figure):
    """The bandwidth that the renumbered allreduce saves."""

    id, rank = "swcaffe-6", 11
    title = "Latency and bandwidth between two nodes by size, inside a supernode and across"
    source = "swCaffe, figure 6, section II.B"
    paper = "about a quarter across supernodes"
    inputs = (Input("across / inside", 0.25, "of the bandwidth", STATED, "section II.B"),)
    unexplained = (
        "Bandwidths and latencies for each message size are a curve alone.",
        "Links here pass 128 KB at once after a pause, an uplink as much of all pairs: messages of 16 KB are faster "
        "than the links' rate, 225 Mbit/s, and the share across differs; from 64 KB on they have 192. Latency is of "
        "sockets and threads in Python: 1 KB took longer inside (0.37 ms) than across (0.22), which is noise.",
        "Earlier runs, quiet ones too, had 0.29 to 0.30 with all nodes: the pairs began one after the other, as their "
        "processes came up, and the last had the uplink to itself. They now begin at once.",
    )

    def measure(self) -> Data:
        """Return the median bytes per second by place and size, of rounds in which the places take turns."""
        shape = str(NODES), f"{RATE}mbit", "0", str(NODES // SUPERNODE), f"{RATE}mbit"
        with lab.cluster(*shape):
            rounds = [[slowest(pairs) for pairs in PLACES.values()] for _ in range(ROUNDS)]
        found = {}
        for name, each in zip(PLACES, zip(*rounds, strict=True), strict=True):
            found[name] = [1 / median(times) for times in zip(*each, strict=True)]
        return {"rates": found}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check the share of the bandwidth of large messages, and that smaller ones have no more."""
        if not measured:
            return
        inside, alone, all_nodes = (measured["rates"][name] for name in PLACES)
        share, largest = self.value("across / inside"), f"{SIZES[-1] >> 20} MB"
        what = "across / inside, all nodes at once"
        yield within(f"{what}, {largest}", all_nodes[-1] / inside[-1], share, 0.15)
        yield within(f"across / inside, one pair alone, {largest}", alone[-1] / inside[-1], 1.0, 0.15)
        past = [b / a for a, b, size in zip(inside, all_nodes, SIZES, strict=True) if size >= LARGE]
        yield within(
            f"{what}, farthest of {LARGE >> 20} MB and more", max(past, key=lambda one: abs(one - share)), share, 0.2
        )

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the bandwidths of the largest message, and the latency of the smallest."""
        if not measured:
            return "", "-"
        rates = measured["rates"].items()
        text = ", ".join(f"{name} {8e-6 * found[-1]:.0f} Mbit/s" for name, found in rates)
        least = ", ".join(f"{1e3 * SIZES[0] / found[0]:.2f}" for _, found in rates)
        return f"{text} ({SIZES[-1] >> 20} MB); of 1 KB {least} ms", "-"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw latency and bandwidth against the size of messages."""
        if not measured:
            return
        left, right = figure.subplots(1, 2)
        rates = measured["rates"]
        for (name, each), how in zip(rates.items(), LOOKS, strict=True):
            milliseconds = [1e3 * n / one for n, one in zip(SIZES, each, strict=True)]
            left.plot(SIZES, milliseconds, **how, label=f"{name}, measured")
            right.plot(SIZES, [8e-6 * one for one in each], **how)
        quarter = [8e-6 * self.value("across / inside") * one for one in rates["inside"]]
        right.plot(SIZES, quarter, ":", color=PAPER, label="paper: about a quarter of inside, all nodes")
        left.set(ylabel="ms of an exchange, both ways at once", yscale="log")
        right.set(ylabel="Mbit/s each way", yscale="log")
        plain(left.yaxis, (0.1, 1, 10, 100, 1000))
        plain(right.yaxis, (5, 10, 20, 50, 100, 200))
        for axes in (left, right):
            axes.set(xscale="log", xlabel="bytes of a message")
            axes.set_xticks(SIZES[::2], [f"{n >> 10} KB" if n < 1 << 20 else f"{n >> 20} MB" for n in SIZES[::2]])
            axes.minorticks_off()


FIGURE = OverSubscribed()
