"""ParaX, figures 15 to 17: gradient server, parameter server and ring of n instances on one machine.

Bytes are counted by the additions and copies that jobs/bench/gathers.py does with scaffe's gather `server`, and by
closed forms for the other two; latency is measured with as many threads. Throughput is modelled:
computing gains from more instances, while an update's bytes pass through the cores that update; gradients and weights
reach those of PS and ring via sockets.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from threading import Thread
from typing import Any

from drawing import curves
from figure import ASSUMED, DERIVED, FITTED, MODEL, OTHER, OURS, STATED, Check, Data, Figure, Input, within

COUNTS, ELEMENTS, TURNS = tuple(range(2, 9)), 25_600_000, 5
GS, PS, RING = "server", "parameter server", "ring"
COLOURS = {GS: OURS, PS: MODEL, RING: OTHER}
PAPERS_COUNTS, DOMAINS = (1, 4, 8, 18, 27, 54), 2  # instances; NUMA nodes, each with weights (algorithm 1)
BLOCK, BLOCKS, STREAMS = 1 << 20, 40, 60  # bytes of a block, blocks of a stream


def passes(way: str, n: int, domains: int = 1) -> float:
    """Return how often an iteration of n instances reads or writes an element of the gradients or weights.

    As section 4.2 describes them. An addition reads two and writes one, a copy reads one and writes one, an update
    reads two and writes one.
    """
    if way == GS:  # the first gradient is the sum's start; n - 1 additions; an update of each domain's weights
        return 3 * (n - 1) + 3 * domains
    if way == PS:  # n pushes, of which the first is copied, the others added; one update; n pulls
        return 2 + 3 * (n - 1) + 3 + 2 * n
    return (n - 1) * 3 + (n - 1) * 2 + 3 * n  # each chunk goes around twice; n updates


def crossed(way: str, n: int, cached: bool = True) -> float:
    """Return how often an exchange of n instances moves an element between memory and caches; updates are left out.

    A line that is written is read first, unless it was. Each push or pull is a pass of its own over all elements, which
    no cache holds. `cached`: a ring's step finds in a cache what the neighbour wrote in the step before.
    """
    if way == GS:
        return 3 * n
    if way == PS:
        return 3 * n + 3 * n
    if not cached:
        return 6 * (n - 1)
    added = 2 * (n - 1) + 1  # reads and writes the own part; in the first step it reads the neighbour's too
    return added + 2 * (n - 1)  # sums come from the neighbour's cache, and are written


def sent(way: str, n: int) -> float:
    """Return how often an iteration sends an element via sockets: pushes and pulls, or around the ring twice."""
    return {GS: 0, PS: 2 * n, RING: 2 * (n - 1)}[way]


def socket_rate() -> float:
    """Return the bytes per second of a TCP connection between two threads here: the fastest of some streams."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver = server.accept()[0]
    with sender, receiver:
        return BLOCK * BLOCKS / min(stream_seconds(sender, receiver) for _ in range(STREAMS))


def stream_seconds(sender: socket.socket, receiver: socket.socket) -> float:
    """Return the seconds in which one thread sends BLOCKS blocks and another receives them."""
    buffer, left = bytearray(BLOCK), BLOCK * BLOCKS
    thread = Thread(target=lambda: [sender.sendall(bytes(BLOCK)) for _ in range(BLOCKS)])
    start = time.perf_counter()
    thread.start()
    while left:
        left -= receiver.recv_into(buffer)
    thread.join()
    return time.perf_counter() - start


class GradientServer(Figure):
    """The update of n instances in three ways."""

    id, rank = "parax-15", 5
    title = "Gradient server against parameter server and ring: bytes, latency, throughput"
    source = "ParaX, figures 15 to 17, section 5.2"
    paper = (
        "bytes: PS 2x GS, ring slightly over; latency: GS always much lower; PS, ring fall past 4 instances, GS grows "
        "but at 54"
    )
    inputs = (
        Input("parameters", ELEMENTS, "elements", DERIVED, "ResNet-50"),
        Input("computing", 196.0, "images/s of one instance", ASSUMED, "half of 9.66 TFLOPS, 24.6 GFLOP for an image"),
        Input(
            "gain", 1.73, "", STATED, "figure 11, of an instance for each core over one instance, least of the range"
        ),
        Input("bandwidth", 281.6e9, "bytes/s", ASSUMED, "two sockets of six channels of DDR4-2933"),
        Input("batch", 64, "images of an instance", STATED, "section 5.2"),
        Input("batch, 54 instances", 32, "images of an instance", STATED, "section 5.2, for want of memory"),
        Input("update cores", 2, "", STATED, "section 5.2: PS and ring dedicate at least two cores, GS has all"),
        Input("socket", 2e9, "bytes/s of a core", ASSUMED, "section 4.2: via sockets; the model has this machine's"),
        Input("core bandwidth", 20e9, "bytes/s", FITTED, "by parax-11, on figure 7's knee"),
    )
    unexplained = (
        "With as many images for each instance the update's share can't grow with the instances, since its bytes grow "
        "as the images do. So PS and ring can't fall from 4 to 27. Locks or the frameworks' threads must do it. "
        "At 54, where the batch is halved, sockets of 0.8 GB/s would do it.",
        "GS stops rising at 54, which the paper puts down to the batch of 32. In the model an image takes as long in "
        "any batch, and GS's update is 1 % of an iteration at 54: only the gain by overlapping is left, which rises "
        "with the instances. The half batch would have to cost a fifth of the rate, by small products or locks.",
        "Figures 15 to 17 have no numbers in the text: only their order and 'about twice' can be checked.",
        "The paper counts reads and writes, but not which. As section 4.2 has it, a push is an addition, 3 accesses, "
        "and a pull a copy, 2: PS over GS is 5/3 for many instances, and a ring's bytes are those of PS, minus 1/n.",
        "One count gives both statements: bytes between memory and caches, where a written line is read first, and "
        "what a ring's neighbour wrote comes from a cache. PS is then 6n, GS 3n, a ring 4n - 3: 1.08 GS with 4 "
        "instances, 1.31 with 54 (the table). It asks that the 51 MB that a step writes on a socket stay in caches, "
        "38.5 MB of L3 and 1 MB of L2 of each core, while as much is read; else a ring has twice GS's bytes too. "
        "The checks count what section 4.2 describes.",
        "scaffe's server adds several gradients in one pass where they have come. It moves less than the formula, "
        "which is the paper's algorithm.",
    )

    def measure(self) -> Data:
        """Return milliseconds and counted passes by way and number of instances."""
        import gathers

        found: Data = {"ms": {way: [] for way in COLOURS}, "passes": {way: [] for way in COLOURS}}
        found["cores"] = len(os.sched_getaffinity(0))
        for n in COUNTS:
            places = gathers.place(str(n), gathers.read_topology(), oversubscribe=True)
            for name, make in gathers.ways(n, ELEMENTS, [one.domain for one in places]):
                if name in COLOURS:
                    seconds, moved = gathers.timed(make(), places, TURNS)
                    found["ms"][name].append(1e3 * seconds)
                    found["passes"][name].append(moved / ELEMENTS)
        return found | {"socket": socket_rate()}

    def model(self, measured: Data) -> Data:
        """Return passes by the closed forms, and throughput over that of one instance."""
        counts = {way: [passes(way, n) for n in COUNTS] for way in COLOURS}
        stream = measured.get("socket", self.value("socket"))
        rates = {way: [self.rate(way, n, stream) for n in PAPERS_COUNTS] for way in COLOURS}
        return {"passes": counts, "rates": rates}

    def rate(self, way: str, n: int, stream: float) -> float:
        """Return the images per second of n instances: computing, whose gain grows with n, then the update.

        `stream`: bytes per second that a core sends or receives via sockets.
        """
        images = n * self.value("batch, 54 instances" if n == PAPERS_COUNTS[-1] else "batch")
        gain = 1 + (self.value("gain") - 1) * (n - 1) / (PAPERS_COUNTS[-1] - 1)
        computing = images / (self.value("computing") * gain)
        nbytes, cores = 4 * self.value("parameters"), self.value("update cores")
        way = GS if n == 1 else way  # section 5.2: one instance has nothing to synchronize
        rate = self.value("bandwidth") if way == GS else cores * self.value("core bandwidth")
        update = nbytes * passes(way, n, DOMAINS) / rate
        return images / (computing + update + nbytes * sent(way, n) / (cores * stream))

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check bytes at every count, latencies at every count, and throughput past 4 instances."""
        for i, n in enumerate(COUNTS):
            if measured:
                counted, spent = measured["passes"], measured["ms"]
                yield within(f"bytes, PS / GS, {n} instances", counted[PS][i] / counted[GS][i], 2.0, 0.1)
                yield Check(f"bytes, ring / GS, {n} instances", counted[RING][i] / counted[GS][i], 1.0, 1.3)
                yield Check(f"latency, GS / PS, {n} instances", spent[GS][i] / spent[PS][i], high=1.0)
                yield Check(f"latency, GS / ring, {n} instances", spent[GS][i] / spent[RING][i], high=1.0)
        for way in (PS, RING):
            found = modelled["rates"][way]
            yield Check(f"throughput, {way}: 54 instances over 4", found[-1] / found[1], high=1.0)
        *rising, last = pairwise(modelled["rates"][GS])
        steps = [after / before for before, after in rising]
        yield Check(
            "throughput, server: least step up to 27 instances (its gain is assumed)", min(steps), 1.0, fitted=True
        )
        yield Check("throughput, server: 54 instances (batch 32) over 27", last[1] / last[0], high=1.0)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the ratios of bytes and of latency."""
        if not measured:
            return "", self._modelled(modelled)

        def over(key: str, way: str) -> str:
            ratios = [a / b for a, b in zip(measured[key][way], measured[key][GS], strict=True)]
            return f"{min(ratios):.2f} to {max(ratios):.2f}"

        text = f"bytes over GS: PS {over('passes', PS)}, ring {over('passes', RING)}"
        text += f"; latency over GS: PS {over('ms', PS)}, ring {over('ms', RING)} ({COUNTS[0]} to {COUNTS[-1]} "
        text += f"threads on {measured['cores']} cores)"
        text += f"; a socket {measured['socket'] / 1e9:.1f} GB/s"
        return text, self._modelled(modelled)

    def _modelled(self, modelled: Data) -> str:
        rates = modelled["rates"]
        text = "54 instances over 4: " + ", ".join(f"{way} {rates[way][-1] / rates[way][1]:.2f}" for way in COLOURS)
        return f"{text}; server, 54 over 27: {rates[GS][-1] / rates[GS][-2]:.2f}"

    def table(self, measured: Data, modelled: Data) -> Iterable[str]:
        """Return bytes over the gradient server's, by way of counting."""
        counts: dict[str, Callable[[str, int], float]] = {
            "reads and writes of section 4.2, with the update": partial(passes, domains=DOMAINS),
            "between memory and caches, a ring's parts in caches": crossed,
            "between memory and caches, a ring's parts in memory": partial(crossed, cached=False),
        }
        yield "| bytes over the gradient server's | " + " | ".join(f"{n} instances" for n in PAPERS_COUNTS[1:]) + " |"
        yield "|---" * len(PAPERS_COUNTS) + "|"
        for what, count in counts.items():
            for way in (PS, RING):
                cells = " | ".join(f"{count(way, n) / count(GS, n):.2f}" for n in PAPERS_COUNTS[1:])
                yield f"| {way}: {what} | {cells} |"

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw throughput, latency and bytes against the number of instances."""
        rates, latency, accessed = figure.subplots(1, 3)
        curves(rates, PAPERS_COUNTS, modelled["rates"], COLOURS.values(), "--")
        curves(accessed, COUNTS, gigabytes(modelled), COLOURS.values(), "--", "")
        if measured:
            curves(latency, COUNTS, measured["ms"], COLOURS.values(), "o-")
            curves(accessed, COUNTS, gigabytes(measured), COLOURS.values(), "o", "")
        most = max(map(max, measured["ms"].values())) if measured else 1
        rates.set(xlabel="instances (batch 64, of 54: 32)", ylabel="images/s", ylim=(0, None))
        rates.set_title("modelled: rates assumed,\na core's bandwidth fitted (parax-11)", fontsize=10)
        latency.set(xlabel="instances", ylabel="update latency, ms", ylim=(0, 1.5 * most))
        threads = f"measured: threads\non {measured['cores']} cores here" if measured else "not measured"
        latency.set_title(threads, fontsize=10)
        accessed.set(xlabel="instances", ylabel="data accessed, GB", ylim=(0, None))
        accessed.set_title("dots: counted here,\nlines: formula", fontsize=10)


def gigabytes(found: Data) -> dict[str, list[float]]:
    """Return the gigabytes that are read and written, by way and number of instances."""
    return {way: [4e-9 * ELEMENTS * one for one in found["passes"][way]] for way in COLOURS}


FIGURE = GradientServer()
