"""What --tensorboard and --metrics cost: the time of LeNet's iterations with them over that without.

    python jobs/bench/watching.py [--rounds 15] [--every 100] [--clock cpu|wall]

Two solvers of one process take turns of `--every` iterations of batch 64 on constant random images, one thread each; of
each turn one iteration is measured and written. The clock `cpu` counts the seconds of all threads of the process on the
cores, and so those of the thread that writes. The ratio is of the medians over the rounds.

The second figure is finer than the noise of a shared machine: the seconds that a measurement takes on the cores, in the
thread that trains and in the one that writes, over those of the iterations between two measurements.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from iteration import random_images, solver_param, zoo

from scaffe.compute import Compute
from scaffe.monitor.watching import Watching
from scaffe.monitor.writing import Writing
from scaffe.training.monitor import Monitor
from scaffe.training.norms import Norms
from scaffe.training.solver import Solver

CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}
BATCH = 64
PARTS = ((Monitor, "measure"), (Norms, "add"), (Writing, "_give"))


def make(watching: Watching, display: int) -> Solver:
    """Return a solver of LeNet over random images of class 0, which displays as often as it measures."""
    param = solver_param(zoo("lenet", BATCH), display=display)
    solver = Solver(param, compute=Compute(threads=1), watching=watching)
    random_images(solver.net, 0)
    return solver


def seconds(solver: Solver, iterations: int, clock: Callable[[], float]) -> float:
    """Return the seconds of an iteration, the mean of so many."""
    start = clock()
    solver.step(iterations)
    return (clock() - start) / iterations


def count(kind: type, name: str, sums: list[float]) -> None:
    """Append to `sums` the seconds on a core of each call of a method."""
    method = getattr(kind, name)

    def timed(*given: Any) -> Any:
        start = time.thread_time()
        result = method(*given)
        sums.append(time.thread_time() - start)
        return result

    setattr(kind, name, timed)


def turns(folder: Path, rounds: int, every: int, clock: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Return the seconds of an iteration in each round, without and with the writers."""
    watching = Watching(tensorboard=folder / "runs", metrics=folder / "run.prom", measure_every=every)
    solvers = [make(Watching(), every), make(watching, every)]
    for solver in solvers:
        solver.step(every)  # texts, the net's drawing and kernels once
    times: tuple[list[float], list[float]] = [], []
    for k in range(rounds):
        for i in (k % 2, 1 - k % 2):
            times[i].append(seconds(solvers[i], every, clock))
    for solver in solvers:
        solver.close()
    return times


def main() -> None:
    """Print the seconds of both, their ratio, and the share of a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    given = parser.parse_args()
    sums: dict[str, list[float]] = {name: [] for _, name in PARTS}
    for kind, name in PARTS:
        count(kind, name, sums[name])
    with tempfile.TemporaryDirectory() as folder:
        times = turns(Path(folder), given.rounds, given.every, CLOCKS[given.clock])
    plain, watched = (1e3 * median(one) for one in times)
    print(f"LeNet, batch {BATCH}, measured every {given.every} iterations, {given.clock} clock, {given.rounds} rounds")
    print(f"{plain:.4f} ms an iteration, watched {watched:.4f} ms: ratio {watched / plain:.4f}")
    warm = {name: 1e3 * sum(one[len(one) // 4 :]) / (len(one) - len(one) // 4) for name, one in sums.items()}
    trains, writes = warm["measure"] + warm["add"], 2 * warm["_give"]  # two writers
    share = (trains + writes) / (given.every * plain)
    print(f"a measurement: {trains:.3f} ms where it trains, {writes:.3f} ms where it writes: {share:.3%}")


if __name__ == "__main__":
    main()
