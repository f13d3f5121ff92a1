"""Time collectives on the emulated cluster: what bench_lab.py starts on each rank.

    rank.py '[["reduce", 8388608, ["auto", "chain", "chain/32768", "mpi"]], ...]'

Rank 0 prints a JSON list of [op, bytes, algorithm, seconds]; after a slash stand the bytes of a chunk. Seconds are
those of the last rank, from a barrier on. A call of the same algorithm that isn't timed comes first.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from mpi4py import MPI

from collectives import Communicator

WARM_UP = 1 << 18  # elements


def timed(comm: Communicator, op: str, name: str, send: np.ndarray, recv: np.ndarray) -> float:
    """Return the seconds of one call; raise ValueError if its result is wrong."""
    algorithm, _, chunk = name.partition("/")
    how = {"algorithm": algorithm, "chunk_bytes": int(chunk or 0)}
    comm.plan(op, send[:WARM_UP], None if op == "bcast" else recv[:WARM_UP], **how).run()
    send[...], recv[...] = comm.rank + 1, 0
    plan = comm.plan(op, send, None if op == "bcast" else recv, **how)
    comm.comm.Barrier()
    start = time.perf_counter()
    plan.run()
    seconds = comm.comm.allreduce(time.perf_counter() - start, MPI.MAX)
    found, want = (send, 1) if op == "bcast" else (recv, comm.size * (comm.size + 1) / 2)
    if (op != "reduce" or comm.rank == 0) and not (found == want).all():
        raise ValueError(f"{op} of {send.nbytes} bytes by {name} gave wrong numbers")
    comm.forget()
    return seconds


def take_precedence() -> None:
    """Let other work on this machine wait: ranks that yield while they wait would lose the processors to it."""
    with suppress(OSError):  # without the scheduler's groups, or without the right
        Path("/proc/self/autogroup").write_text("-19")


def main() -> None:
    take_precedence()
    jobs = json.loads(sys.argv[1])
    comm = Communicator(MPI.COMM_WORLD)
    longest = max(nbytes for _, nbytes, _ in jobs) // 4
    send, recv = comm.empty(longest), comm.empty(longest)
    rows = [
        (op, nbytes, name, timed(comm, op, name, send[: nbytes // 4], recv[: nbytes // 4]))
        for op, nbytes, names in jobs
        for name in names
    ]
    if comm.rank == 0:
        print(json.dumps(rows))
    comm.free()


if __name__ == "__main__":
    main()
