"""Time collectives on each rank; cluster.py and node.py start it on each rank.

    rank.py '[["reduce", 8388608, ["auto", "chain/32768", "mpi", "auto@plain"], 3], ...]'

Each job is an operation, a number of bytes, a list of algorithms, and a number of calls; the algorithms alternate from
call to call. `/N` sets the bytes of a chunk, `@plain` uses buffers that the ranks of a node do not share. Rank 0 prints
a JSON list of [op, bytes, algorithm, seconds], one entry per call, and last ["memory", 0, "", seconds per byte]. A call
takes the seconds from a barrier to the end of the slowest rank.
"""

from __future__ import annotations

import atexit
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
from mpi4py import MPI

from collectives import Communicator

WARM_UP = 1 << 18  # elements
Row = tuple[str, int, str, float]


def take_precedence() -> None:
    """Raise this session's priority until the end: ranks that yield while they wait would lose the CPUs to others."""
    _set_precedence("-19")
    atexit.register(_set_precedence, "0")


def _set_precedence(niceness: str) -> None:
    with suppress(OSError):  # no autogroups in this kernel, or no permission
        Path("/proc/self/autogroup").write_text(niceness)


class Bench:
    """A communicator and its buffers of `nbytes` bytes, shared within a node and plain."""

    def __init__(self, comm: Communicator, nbytes: int):
        self.comm, n = comm, nbytes // 4
        self.comms = {"": comm, "plain": comm.dup()}  # "auto" chooses for one kind of memory
        self.buffers = {
            "": (comm.empty(n), comm.empty(n)),
            "plain": (np.zeros(n, np.float32), np.zeros(n, np.float32)),
        }

    def action(self, op: str, name: str, count: int) -> Callable[[], None]:
        """Return a call over the first `count` elements; algorithm "mpi" calls the MPI library itself."""
        name, _, kind = name.partition("@")
        algorithm, _, chunk = name.partition("/")
        send, recv = (buffer[:count] for buffer in self.buffers[kind])
        if algorithm == "mpi":
            call = getattr(self.comm.comm, op.capitalize())
            return (
                partial(call, [send, MPI.FLOAT])
                if op == "bcast"
                else partial(call, [send, MPI.FLOAT], [recv, MPI.FLOAT])
            )
        how = {"algorithm": algorithm, "chunk_bytes": int(chunk or 0)}
        self.comms[kind].plan(op, send, None if op == "bcast" else recv, **how)
        return partial(getattr(self.comms[kind], op), send, **({} if op == "bcast" else {"recv": recv}), **how)

    def seconds(self, action: Callable[[], None], kind: str, count: int) -> float:
        """Return the seconds of a call on the slowest rank, over buffers filled with rank + 1."""
        send, recv = self.buffers[kind]
        send[:count], recv[:count] = self.comm.rank + 1, 0
        self.comm.comm.Barrier()
        start = time.perf_counter()
        action()
        slowest: float = self.comm.comm.allreduce(time.perf_counter() - start, MPI.MAX)
        return slowest

    def check(self, op: str, name: str, count: int) -> None:
        """Raise ValueError if the previous call gave wrong numbers."""
        size, (send, recv) = self.comm.size, self.buffers[name.partition("@")[2]]
        found, want = (send, 1) if op == "bcast" else (recv, size * (size + 1) / 2)
        if (op != "reduce" or self.comm.rank == 0) and not (found[:count] == want).all():
            raise ValueError(f"{op} of {4 * count} bytes by {name} gave wrong numbers")

    def rows(self, op: str, nbytes: int, names: list[str], calls: int) -> Iterator[Row]:
        """Yield the seconds of each call, after one short call per algorithm, which opens the connections."""
        kinds, count = {name: name.partition("@")[2] for name in names}, nbytes // 4
        for name, kind in kinds.items():
            short = min(WARM_UP, count)
            self.seconds(self.action(op, name, short), kind, short)
        actions = {name: self.action(op, name, count) for name in names}
        for i in range(calls):
            for name, kind in kinds.items():
                yield op, nbytes, name, self.seconds(actions[name], kind, count)
                if i == 0:
                    self.check(op, name, count)
        for comm in self.comms.values():
            comm.forget()

    def memory(self) -> float:
        """Return the seconds per byte of memory traffic while all ranks add arrays, the best of three."""
        (a, b), (c, _) = self.buffers.values()
        found = []
        for _ in range(3):
            self.comm.comm.Barrier()
            start = time.perf_counter()
            np.add(a, b, out=c)
            found.append(self.comm.comm.allreduce(time.perf_counter() - start, MPI.MAX))
        per_byte: float = min(found) / (3 * a.nbytes * self.comm.size)
        return per_byte


def main() -> None:
    """Time the jobs of the first argument; rank 0 prints the rows as JSON."""
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return
    take_precedence()
    jobs = json.loads(sys.argv[1])
    comm = Communicator(MPI.COMM_WORLD)
    bench = Bench(comm, max(nbytes for _, nbytes, *_ in jobs))
    rows = [row for job in jobs for row in bench.rows(*job)]
    rows.append(("memory", 0, "", bench.memory()))
    if comm.rank == 0:
        print(json.dumps(rows))
    comm.free()


if __name__ == "__main__":
    main()
