"""What mirrors of the root's state cost a run (--mirror-every), over one that goes on without lost ranks but has none.

    jobs/mpirun.sh --ft -n 4 python jobs/bench/mirror.py --net alexnet --batch 32 --every 1 --iterations 3 --rounds 5

Each way runs in turn. The cost of a mirror is what a round takes longer than one without, over the mirrors in it. It is
compared with two copies of the state, by the root and by its buddy, at the rate of a copy of as many bytes.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from core_rate import CoreRate
from iteration import random_images, solver_param, zoo

from scaffe.parallel.run import Run
from scaffe.parallel.world import open_world
from scaffe.training.solver import Solver


def made(given: argparse.Namespace, every: int) -> Solver:
    """Return a solver of a net on random images; every 0 takes no mirrors."""
    param = solver_param(zoo(given.net, given.batch), snapshot_prefix="none")
    solver = Solver(param, run=Run(given.workflow, on_rank_loss="shrink", mirror_every=every))
    random_images(solver.net, 1)
    return solver


def measure(solvers: dict[int, Solver], given: argparse.Namespace) -> dict[int, list[float]]:
    """Return the seconds of each round, by the iterations between two mirrors."""
    seconds: dict[int, list[float]] = {every: [] for every in solvers}
    for solver in solvers.values():
        solver.step(2)
    for _ in range(given.rounds):
        for every, solver in solvers.items():
            start = time.perf_counter()
            solver.step(given.iterations)
            seconds[every].append(time.perf_counter() - start)
    for solver in solvers.values():
        solver.close()
    return seconds


def seconds_of_a_copy(nbytes: int) -> float:
    """Return the median seconds of a copy in memory."""
    values, copy, seconds = np.ones(nbytes // 4, np.float32), np.ones(nbytes // 4, np.float32), []
    for _ in range(5):
        start = time.perf_counter()
        np.copyto(copy, values)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def main() -> None:
    """Measure, and print each way's median and its cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", default="lenet", help="a net of scaffe's models")
    parser.add_argument("--batch", type=int, default=64, help="images of an iteration")
    parser.add_argument("--workflow", default="SC-OBR")
    parser.add_argument("--every", default="1,10,100", type=lambda text: [int(one) for one in text.split(",")])
    parser.add_argument("--iterations", type=int, default=100, help="of a round, which begins with a mirror")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    world, rate = open_world(), CoreRate("float32")
    solvers = {every: made(given, every) for every in (0, *given.every)}
    nbytes = 2 * solvers[0].net.packed.nbytes  # weights and momentum
    seconds = measure(solvers, given)
    if not world.is_root:
        return
    copy, speed = seconds_of_a_copy(nbytes), np.median([rate.once(time.perf_counter) for _ in range(5)])
    print(
        f"{given.net}, batch {given.batch}, {world.size} ranks, {given.workflow}; {speed:.0f} GFLOP/s a core; a mirror:"
    )
    print(f"{nbytes / 1e6:.1f} MB, two copies in {2e3 * copy:.1f} ms")
    without = np.array(seconds[0])
    for every, spent in seconds.items():
        cost, mirrors = np.median(np.array(spent) - without), -(-given.iterations // every) if every else 1
        print(
            f"{f'every {every}' if every else 'none':<12}{1e3 * np.median(spent) / given.iterations:10.2f} ms an "
            f"iteration, {1e3 * cost / mirrors:8.2f} ms a mirror ({cost / np.median(without):+.2%})"
        )


if __name__ == "__main__":
    main()
