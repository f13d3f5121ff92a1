"""What snapshots cost a run: written while it waits, and while it goes on, over iterations without any.

    python jobs/bench/snapshots.py --net alexnet --batch 32 --every 10 --rounds 7 --folder DISK

A round has a snapshot in its middle, and each way runs in turn. The cost of a snapshot is what a round takes longer
than one without, over the time of `every` iterations. The files are synced to disk: choose it by `--folder`.
"""

from __future__ import annotations

import argparse
import tempfile
import time

import numpy as np
from core_rate import CoreRate
from iteration import random_images, solver_param, zoo

from scaffe.parallel.run import Run
from scaffe.training.solver import Solver

WITHOUT, WAITING, MEANWHILE = "no snapshot", "waiting", "while training goes on"


def made(name: str, batch: int, folder: str, every: int, meanwhile: bool) -> Solver:
    """Return a solver of a net on random images; every 0 takes no snapshots."""
    prefix = f"{folder}/{meanwhile}-{every}"
    param = solver_param(zoo(name, batch), snapshot=every, snapshot_prefix=prefix)
    solver = Solver(param, run=Run(keep_snapshots=1, snapshot_async=meanwhile))
    random_images(solver.net, 1)
    return solver


def measure(given: argparse.Namespace, folder: str) -> dict[str, list[float]]:
    """Return the seconds of each round, by way. A round ends before the snapshot at its end is waited for."""
    ways = {WITHOUT: (0, False), WAITING: (given.every, False), MEANWHILE: (given.every, True)}
    solvers = {way: made(given.net, given.batch, folder, *how) for way, how in ways.items()}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for solver in solvers.values():
        solver.step(given.every)
    for _ in range(given.rounds):
        for way, solver in solvers.items():
            start = time.perf_counter()
            solver.step(2 * given.every - 1)  # the snapshot is in the middle: what it costs later counts too
            seconds[way].append(time.perf_counter() - start)
            solver.step(1)
    for solver in solvers.values():
        solver.close()
    return seconds


def main() -> None:
    """Measure, and print each way's median and its cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", default="lenet", help="a net of scaffe's models")
    parser.add_argument("--batch", type=int, default=64, help="images of an iteration")
    parser.add_argument("--every", type=int, default=100, help="iterations between two snapshots")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", help="where to write the snapshots; a temporary folder by default")
    given = parser.parse_args()
    rate = CoreRate("float32")
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        seconds = measure(given, folder)
    speed = np.median([rate.once(time.perf_counter) for _ in range(5)])
    print(f"{given.net}, batch {given.batch}, a snapshot every {given.every} iterations; {speed:.0f} GFLOP/s a core")
    without, iterations = np.array(seconds[WITHOUT]), 2 * given.every - 1
    for way, spent in seconds.items():
        cost = np.median(np.array(spent) - without)
        share = cost / (given.every * np.median(without) / iterations)
        print(
            f"{way:<24}{1e3 * np.median(spent) / iterations:10.2f} ms an iteration, {1e3 * cost:8.1f} ms ({share:+.2%})"
        )


if __name__ == "__main__":
    main()
