"""IterationTimes: how long iterations take that take turns, and what one of scaffe's consists of."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
from core_rate import CoreRate

import scaffe
from scaffe.devices.kernel_run import REORDER, KernelRun

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}  # cpu: for a machine with other work
WARM_UP = 2  # iterations of each before the rounds


class IterationTimes:
    """The seconds of each iteration in `rounds` rounds, in which all take turns, with the core's rates in that round.

    `rates` are the products to measure, by number format; on a shared machine a core's rate changes with time.
    """

    def __init__(
        self,
        iterations: Mapping[str, Callable[[], object]],
        rates: Mapping[str, CoreRate],
        rounds: int,
        clock: Callable[[], float],
    ):
        for iteration in iterations.values():
            for _ in range(WARM_UP):
                iteration()
        self._seconds: dict[str, list[float]] = {name: [] for name in iterations}
        self._rates: dict[str, list[float]] = {numbers: [] for numbers in rates}
        for _ in range(rounds):
            for name, iteration in iterations.items():
                self._seconds[name].append(seconds(iteration, clock))
            for numbers, product in rates.items():
                self._rates[numbers].append(product.once(clock))

    def median(self, name: str) -> float:
        """Return the median seconds of an iteration."""
        return float(np.median(self._seconds[name]))

    def ratio(self, name: str, other: str) -> str:
        """Return the speed of an iteration over another's: the median, the 10th and the 90th percentile of rounds."""
        low, middle, high = np.percentile(np.divide(self._seconds[other], self._seconds[name]), (10, 50, 90))
        return f"{middle:5.2f} ({low:.2f} to {high:.2f})"

    def fraction(self, name: str, numbers: str, operations: float) -> float:
        """Return an iteration's operations a second over the core's rate: the median of the rounds."""
        speeds = 1e-9 * operations / np.array(self._seconds[name])
        return float(np.median(speeds / np.array(self._rates[numbers])))


def seconds(iteration: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the seconds of one iteration."""
    start = clock()
    iteration()
    return clock() - start


def over_kernels(net: scaffe.Net, iteration: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Return the time of an iteration over that of its kernels, and the part of that which is reorders; medians.

    The kernels are the engine's, reorders included; the rest is Python's, numpy's and the update's numpy. The iteration
    is one that nothing watches, since a watcher takes time for each kernel; it precedes the one that is watched.
    """
    ratios, parts = [], []
    for _ in range(rounds):
        runs: list[KernelRun] = []
        whole = seconds(iteration, time.perf_counter)
        net.engine.watcher = runs.append
        iteration()
        net.engine.watcher = None
        kernels = sum(run.seconds for run in runs)
        ratios.append(whole / kernels)
        parts.append(sum(run.seconds for run in runs if run.operation == REORDER) / kernels)
    return float(np.median(ratios)), float(np.median(parts))
