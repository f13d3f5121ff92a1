"""swCaffe, figure 7 and equations 3 to 6: the renumbered allreduce over an over-subscribed uplink.

    mpirun -n P python swcaffe_7.py SUPERNODES NBYTES CALLS    prints the seconds of each call, both numberings

Eight nodes in two supernodes of four; halving and doubling with adjacent numbers, and with numbers dealt round-robin
over the supernodes. The uplink has a quarter of its nodes' rate, then all of it.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from statistics import median
from typing import Any

import lab
import numpy as np
from drawing import OTHER, OURS, PAPER, curves
from figure import DERIVED, STATED, Data, Figure, Input, M
from verdicts import Judged, compared

from collectives.model import predict
from collectives.model.clusters import TAIHULIGHT
from collectives.schedules.algorithms import make_schedule

NODES, SUPERNODE, RATE, OVER = 8, 4, 200, 4  # nodes, nodes of a supernode, Mbit/s of a node, uplinks
ERROR = 0.1
SIZES, CALLS = (1 << 20, 4 << 20, 16 << 20, 64 << 20), 3
UPLINKS = {"a quarter": RATE, "full": SUPERNODE * RATE}  # of its nodes' rate together, in Mbit/s
NAMES = "old", "new"


def ratio(p: int, q: int, over: float) -> float:
    """Return old over new without latency and additions, as equations 2 to 6; `over` is beta2 / beta1."""
    links = replace(TAIHULIGHT, alpha=0, beta=1, gamma=0, nodes_per_supernode=q, oversubscription=over)
    old, new = (
        predict(make_schedule("allreduce", "halving", p, p, chunk=p, order=order), links)
        for order in (None, links.group(p).round_robin())
    )
    return old / new


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

    id, tag = "swcaffe-7", M
    inputs = (
        Input("old / new", ratio(NODES, SUPERNODE, OVER), "times", DERIVED, "equations 3 to 6 without latency"),
        Input("uplink", OVER, "times as long", STATED, "section II.B: a quarter of the bandwidth; set here"),
        Input("error", ERROR, "of a time", DERIVED, "docs/simulate.md: emulated links against their rates"),
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

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Judge the gain of the largest message by the equations'."""
        quarter, full = (over(measured[name][-1]) for name in UPLINKS)
        verdict = compared(quarter, self.value("old / new"), ERROR)
        return Judged(verdict, f"{quarter:.2f} at {SIZES[-1] >> 20} MB, {full:.2f} with an uplink in full")

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw the gain against bytes, for each uplink."""
        rows = {f"measured, uplink: {name}": [over(each) for each in measured[name]] for name in UPLINKS}
        curves(axes, SIZES, rows, (OURS, OTHER), "o-")
        axes.axhline(self.value("old / new"), color=PAPER, linestyle="--", label="paper: equations 3 to 6, a quarter")
        axes.set(xlabel="bytes", ylabel="old numbers' time over new ones'", xscale="log", ylim=(0, 3))
        axes.set_xticks(SIZES, [f"{n >> 20} MB" for n in SIZES])
        axes.set_title(f"{NODES} nodes in supernodes of {SUPERNODE}", fontsize=10)


def over(each: dict[str, list[float]]) -> float:
    """Return the median of old over that of new."""
    return median(each["old"]) / median(each["new"])


FIGURE = Renumbered()

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
