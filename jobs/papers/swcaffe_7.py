"""swCaffe, figure 7 and equations 3 to 6: the renumbered allreduce over an over-subscribed uplink.

    mpirun -n P python swcaffe_7.py SUPERNODES NBYTES CALLS    prints the seconds of each call, both numberings

Eight nodes in two supernodes of four; halving and doubling with adjacent numbers, and with numbers dealt round-robin
over the supernodes. The uplink has a quarter of its nodes' rate, then all of it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from statistics import median
from typing import Any

import lab
import numpy as np
from figure import DERIVED, MODEL, OURS, STATED, Check, Data, Figure, Input, within

from collectives import make_schedule
from collectives.group import Group
from collectives.model import predict
from collectives.model.clusters import TAIHULIGHT, Cluster
from collectives.model.formulas import (
    allgather_time,
    allreduce_time,
    new_allgather_time,
    new_reduce_scatter_time,
    reduce_scatter_time,
)
from collectives.supernodes import crossing

NODES, SUPERNODE, RATE = 8, 4, 200  # nodes, nodes of a supernode, Mbit/s of a node
SIZES, CALLS = (1 << 20, 4 << 20, 16 << 20, 64 << 20), 3
UPLINKS = {"a quarter": RATE, "full": SUPERNODE * RATE}  # of its nodes' rate together, in Mbit/s
NAMES = "old", "new"
OLD, NEW = (reduce_scatter_time, allgather_time), (new_reduce_scatter_time, new_allgather_time)


def schedules(group: Group, elements: int) -> dict[str, Any]:
    """Return the allreduce of both numberings, each message whole."""
    orders = {"old": group.order(), "new": group.round_robin()}
    size = group.size
    return {n: make_schedule("allreduce", "halving", size, elements, chunk=elements, order=orders[n]) for n in NAMES}


def crossed(p: int, q: int) -> list[int]:
    """Return the elements that cross supernodes, of p x 1024 elements, in the old and the new numbering."""
    group = Group.uniform(p, 1, q)
    return [crossing(schedule, group) for schedule in schedules(group, p * 1024).values()]


def ratio(p: int, q: int, over: float) -> float:
    """Return old over new by equations 2 to 6 without latency and additions; `over` is beta2 / beta1."""
    old, new = (allreduce_time(*way, p=p, q=q, n=1.0, alpha=0, beta1=1, beta2=over) for way in (OLD, NEW))
    return old / new


def predicted(cluster: Cluster, ranks: int, nbytes: int) -> list[float]:
    """Return the seconds of both numberings by simulated events."""
    group = cluster.group(ranks)
    return [predict(each, cluster, group=group) for each in schedules(group, nbytes // 4).values()]


def main(supernodes: str, nbytes: int, calls: int) -> None:
    """Time both numberings in turn; rank 0 prints the seconds of the slowest rank as JSON."""
    from mpi4py import MPI

    from collectives import Communicator

    flat = Communicator(MPI.COMM_WORLD)
    comms = dict(zip(NAMES, (flat, Communicator(MPI.COMM_WORLD, supernodes=supernodes)), strict=True))
    send, recv = np.full(nbytes // 4, flat.rank + 1, np.float32), np.zeros(nbytes // 4, np.float32)
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for call in range(calls + 1):
        for name, comm in comms.items():
            MPI.COMM_WORLD.Barrier()
            start = time.perf_counter()
            comm.allreduce(send, recv=recv, algorithm="halving")
            found[name].append(MPI.COMM_WORLD.allreduce(time.perf_counter() - start, MPI.MAX))
            if call == 0 and not (recv == flat.size * (flat.size + 1) / 2).all():
                raise ValueError(f"allreduce of {nbytes} bytes, {name} numbers, gave wrong sums")
    if flat.rank == 0:
        print(json.dumps({name: each[1:] for name, each in found.items()}))
    for comm in comms.values():
        comm.free()


class Renumbered(Figure):
    """Round-robin numbers keep the large messages inside supernodes."""

    id, rank = "swcaffe-7", 2
    slow = True
    title = "Renumbered allreduce over an uplink of a quarter"
    source = "swCaffe, figures 6 and 7, equations 2 to 6, section V.A"
    paper = "beta2's factor: p - q falls to p / q - 1"
    inputs = (
        Input("uplink", 4, "times beta1", STATED, "section II.B: a quarter of the bandwidth across supernodes"),
        Input("old / new, 8 nodes", 1.9, "", DERIVED, "equations 3 to 6, p = 8, q = 4, beta2 = 4 beta1"),
        Input("old / new, 1,024 nodes", 3.2238, "", DERIVED, "equations 3 to 6, p = 1024, q = 256"),
        Input("beta1", TAIHULIGHT.beta, "s/byte", STATED, "section II.B, 12 GB/s over MPI"),
    )
    unexplained = (
        "The paper gives no time of this allreduce, old or new.",
        "The text has beta2 as a quarter of beta1; a quarter of the bandwidth is 4 beta1.",
    )

    def measure(self) -> Data:
        """Return the seconds of each call by uplink, bytes and numbering."""
        hosts = ";".join(",".join(f"nl{i}" for i in range(k, k + SUPERNODE)) for k in range(0, NODES, SUPERNODE))
        found: Data = {}
        for name, uplink in UPLINKS.items():
            shape = str(NODES), f"{RATE}mbit", "0", str(NODES // SUPERNODE), f"{uplink}mbit"
            with lab.cluster(*shape):
                program = __file__, hosts
                found[name] = [lab.last_json(lab.on_nodes(1, *program, str(n), str(CALLS))) for n in SIZES]
        return found

    def model(self, measured: Data) -> Data:
        """Return simulated seconds of both numberings here, by uplink, and on 1,024 nodes; bytes that cross."""
        beta = 8e-6 / RATE
        ours = Cluster("lab", NODES, 1, 0, 0, 1e-4, beta, 0, nodes_per_supernode=SUPERNODE, oversubscription=4)
        uplinks = {"a quarter": ours, "full": replace(ours, oversubscription=1)}
        return {
            "here": {name: [predicted(cluster, NODES, n) for n in SIZES] for name, cluster in uplinks.items()},
            "1024": predicted(replace(TAIHULIGHT, gamma=0), 1024, 256 << 20),
            "crossing": {f"{p} {q}": crossed(p, q) for p, q in ((NODES, SUPERNODE), (1024, 256))},
        }

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Check the bytes that cross, and the times at 64 MB."""
        for (p, q), wanted in (((NODES, SUPERNODE), 4), ((1024, 256), 256)):
            old, new = modelled["crossing"][f"{p} {q}"]
            what = f"bytes across supernodes, old / new, {p:,} nodes in supernodes of {q}"
            yield Check(what, old / new, wanted, wanted)
        old, new = modelled["1024"]
        yield within("time old / new, 1,024 nodes, simulated", old / new, self.value("old / new, 1,024 nodes"), 0.15)
        if measured:
            quarter, full = (over(measured[name][-1]) for name in UPLINKS)
            text = f"time old / new, {SIZES[-1] >> 20} MB, uplink"
            yield within(f"{text} of a quarter", quarter, self.value("old / new, 8 nodes"), 0.15)
            yield within(f"{text} in full", full, 1.0, 0.05)

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the ratios of times and bytes."""
        old, new = modelled["1024"]
        across = ", ".join(f"{a / b:.0f}" for a, b in modelled["crossing"].values())
        model = (
            f"old / new {ratio(NODES, SUPERNODE, 4):.2f}, {old / new:.2f} on 8, 1,024 nodes; bytes across {across}, "
        )
        model += "counted from the schedules"
        if not measured:
            return "", model
        quarter, full = (over(measured[name][-1]) for name in UPLINKS)
        return f"old / new {quarter:.2f}, uplink in full {full:.2f}; 8 nodes, {SIZES[-1] >> 20} MB", model

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw seconds against bytes, for each uplink."""
        for axes, uplink in zip(figure.subplots(1, 2, sharey=True), UPLINKS, strict=True):
            for i, (name, colour) in enumerate(zip(NAMES, (MODEL, OURS), strict=True)):
                model = [each[i] for each in modelled["here"][uplink]]
                axes.loglog(SIZES, model, "--", color=colour, label=f"{name} numbers, modelled")
                if measured:
                    found = [median(each[name]) for each in measured[uplink]]
                    axes.loglog(SIZES, found, "o", color=colour, label=f"{name} numbers, measured")
            axes.set(xlabel="bytes", ylabel="allreduce, s", title=f"8 nodes, 2 supernodes, uplink: {uplink}")
            axes.set_xticks(SIZES, [f"{n >> 20} MB" for n in SIZES])


def over(each: dict[str, list[float]]) -> float:
    """Return the median of old over that of new."""
    return median(each["old"]) / median(each["new"])


FIGURE = Renumbered()

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
