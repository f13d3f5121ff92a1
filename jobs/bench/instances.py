"""How much n instances of one core gain in training: over one instance, over ranks of MPI, and over PyTorch.

    python jobs/bench/instances.py [--nets lenet,alexnet] [--rows core,threads] [--turns 9] [--torch PYTHON]

An iteration is forward, backward and update by Solver.step, on constant random images, with the same global batch for
all. Each way to train has processes of its own, which take turns in one run. Rows:

- core: n instances over 1 instance of 1 core,
- threads: n instances over 1 instance with n threads (ParaX's comparison),
- ranks: n instances over n ranks of MPI, each on a core of its own; their memory too,
- torch: n instances over PyTorch with n threads or DDP with n processes, whichever is faster,
- inference: forward passes, n instances over 1 with n threads,
- share: Python's share of the cores' time with n instances.

A ratio is the median over the turns, with the 10th and 90th percentile; above 1 the instances are faster. Beside it
stand the rates of a matrix product on one core alone and on n cores at once, measured in the same turns: if n cores
are not n times as fast, nor can n instances be.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from cores import Cores
from turns import INFER, TORCH, Turns, Way

from scaffe.parallel.instances.topology import read_topology

NETS = {"googlenet": 16, "resnet50": 8, "alexnet": 32, "lenet": 64, "cifar10_quick": 100, "mobilenet": 8}
OURS, CORE, THREADS, RANKS = "instances", "1 core", "threads", "ranks"
PYTORCH, DDP, PASSES, THREADS_PASSES, TIMED = "PyTorch", "DDP", "passes", "passes by threads", "timed"


@dataclass(frozen=True)
class Row:
    """A comparison: way `ours` with the faster of the ways `others`, and the ratio that is asked of each net."""

    name: str
    ours: str
    others: Sequence[str]
    asked: dict[str, float] = field(default_factory=dict)


ROWS = {
    row.name: row
    for row in (
        Row("core", OURS, [CORE], dict(zip(NETS, (1.85, 1.9, 1.75, 1.8, 1.75, 1.85), strict=True))),
        Row("threads", OURS, [THREADS], {"googlenet": 1.25, "resnet50": 1.25, "mobilenet": 1.3, "lenet": 1.3}),
        Row("ranks", OURS, [RANKS], dict.fromkeys(NETS, 1.0)),
        Row("torch", OURS, [PYTORCH, DDP], {"googlenet": 1.5, "alexnet": 1.8, "resnet50": 1.15}),
        Row("inference", PASSES, [THREADS_PASSES], {"resnet50": 1.25}),
        Row("share", TIMED, [], {"lenet": 0.15}),
    )
}
MEMORY = {"alexnet": 0.75}  # of the ranks'


def ways_of(net: str, batch: int, n: int, gather: str) -> dict[str, Way]:
    """Return all ways to train or run a net, by name."""
    ours = {"instances": n, "gather": gather}
    found = (
        Way(OURS, net, batch, **ours),
        Way(CORE, net, batch),
        Way(THREADS, net, batch, threads=n),
        Way(RANKS, net, batch, processes=n),
        Way(PYTORCH, net, batch, TORCH, threads=n),
        Way(DDP, net, batch, TORCH, processes=n),
        Way(PASSES, net, batch, INFER, instances=n),
        Way(THREADS_PASSES, net, batch, INFER, threads=n),
        Way(TIMED, net, batch, **ours, timed=True),
    )
    return {way.name: way for way in found}


def spread(values: np.ndarray) -> str:
    """Return the median, and the 10th and 90th percentile."""
    low, middle, high = np.percentile(values, (10, 50, 90))
    return f"{middle:5.2f} ({low:.2f} to {high:.2f})"


def compared(row: Row, net: str, times: dict[str, np.ndarray], rates: str) -> str:
    """Return a row's line; `times` holds seconds by way and turn."""
    ours, others = times[row.ours], np.min([times[name] for name in row.others], 0)
    asked = f">= {row.asked[net]:g}" if net in row.asked else ""
    faster = min(row.others, key=lambda name: float(np.median(times[name])))
    ms = f"{1e3 * np.median(ours):8.1f} {1e3 * np.median(others):8.1f}"
    return f"{net:14} {row.name:10}{spread(others / ours)} {asked:8}{ms}  {rates}  over {faster}"


def memory(net: str, turns: Turns) -> str:
    """Return a line on the memory of instances and of ranks."""
    ours, theirs = (turns.all[name].memory() for name in (OURS, RANKS))
    resident, proportional = (one / other for one, other in zip(ours, theirs, strict=True))
    asked = f", asked <= {MEMORY[net]:g}" if net in MEMORY else ""
    return (
        f"{net:14} memory    {proportional:5.2f} of the ranks' (PSS {ours[1]:.0f} and {theirs[1]:.0f} MiB), "
        f"{resident:.2f} by RSS ({ours[0]:.0f} and {theirs[0]:.0f} MiB){asked}"
    )


def share(net: str, n: int, turns: Turns, count: int) -> str:
    """Return a line on the share of Python, and of waiting."""
    (wall, used, kernels), *_ = turns.all[TIMED].ask("share", count)
    asked = f", asked <= {ROWS['share'].asked[net]:.0%}" if net in ROWS["share"].asked else ""
    return (
        f"{net:14} share     {1 - kernels / used:5.1%} of the threads' time is Python's and numpy's{asked}; "
        f"{1 - used / (n * wall):.1%} of the {n} cores' time is unused"
    )


def bench(net: str, rows: Sequence[Row], given: argparse.Namespace, pythons: dict[str, str], cores: Cores) -> None:
    """Print a net's lines."""
    n = given.instances
    ways = ways_of(net, given.batch or NETS[net], n, given.gather)
    names = dict.fromkeys(name for row in rows for name in (row.ours, *row.others))
    with Turns([ways[name] for name in names], pythons) as turns:
        counts = turns.counts(given.seconds)
        found, rates = [], []
        for k in range(given.turns):
            rates.append((cores.gflops(1), cores.gflops(n)))
            found.append(turns.turn(counts, bool(k % 2)))
        times = {name: np.array([turn[name] for turn in found]) for name in names}
        speeds = "{:4.0f} {:4.0f}".format(*np.median(rates, 0))
        for row in rows:
            print(compared(row, net, times, speeds) if row.others else share(net, n, turns, counts[TIMED]))
            if row.name == RANKS:
                print(memory(net, turns))
    sys.stdout.flush()


def has_torch(python: str) -> bool:
    """Return whether a Python has PyTorch and scaffe's needs."""
    tried = subprocess.run([python, "-c", "import torch, numpy, google.protobuf, threadpoolctl"], capture_output=True)
    return tried.returncode == 0


def arguments() -> argparse.Namespace:
    """Return the command line's values, checked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", default="", metavar="NET,NET", help=f"default: each row's of {','.join(NETS)}")
    parser.add_argument("--rows", default=",".join(ROWS), metavar="ROW,ROW", help="default: %(default)s")
    parser.add_argument("--turns", type=int, default=9, help="of each way (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn (default: %(default)s)")
    parser.add_argument("--instances", type=int, default=2, metavar="N", help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=0, metavar="N", help="global batch; default: each net's")
    parser.add_argument("--gather", default="auto", metavar="NAME", help="default: what training chooses")
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON", help="a Python with PyTorch and scaffe")
    given = parser.parse_args()
    for what, known in (("nets", NETS), ("rows", ROWS)):
        if unknown := [name for name in getattr(given, what).split(",") if name and name not in known]:
            parser.error(f"unknown {what} {' '.join(unknown)}; known: {' '.join(known)}")
    if given.instances > len(cores := read_topology().cores):
        parser.error(f"{given.instances} instances need as many cores; this process has {len(cores)}")
    return given


def main() -> None:
    """Print the table."""
    given = arguments()
    n, rows = given.instances, [ROWS[name] for name in given.rows.split(",")]
    if ROWS["torch"] in rows and not has_torch(given.torch):
        rows.remove(ROWS["torch"])
        print(f"no PyTorch in {given.torch}: its rows are left out; see --torch")
    print(f"{n} instances, gather {given.gather}; GFLOP/s of a matrix product on 1 core and on {n} at once")
    print(f"{'net':14} {'row':10}{'ratio':21}{'asked':8}{'ms':>8} {'theirs':>8}{'GFLOP/s':>11}")
    with Cores(n) as cores:
        for net in given.nets.split(",") if given.nets else NETS:
            if chosen := [row for row in rows if given.nets or net in row.asked]:
                bench(net, chosen, given, {TORCH: given.torch}, cores)


if __name__ == "__main__":
    main()
