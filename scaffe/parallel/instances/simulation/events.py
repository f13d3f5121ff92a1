"""Events: programs whose loads share memory bandwidth, from one end of a load to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

NONE = 1e-12  # of a load's seconds: nothing is left


@dataclass(frozen=True)
class Load:
    """Work for `cores` cores: `seconds` where bandwidth is no limit, in which they move `moved` bytes evenly.

    With 0 cores it is a pause.
    """

    seconds: float
    moved: float = 0.0
    cores: int = 1


Condition = Callable[[], bool]
Program = Iterator[Load | Condition]  # it goes on once a load is done, or a condition is true


@dataclass
class Usage:
    """What a machine does over time: the seconds of each interval, its bytes a second, and its cores at full speed."""

    seconds: list[float] = field(default_factory=list)
    bandwidth: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)

    @property
    def total(self) -> float:
        """The seconds of all intervals."""
        return sum(self.seconds)

    def mean(self, values: Sequence[float]) -> float:
        """Return the mean over time of `bandwidth` or of `cores`."""
        return float(np.dot(self.seconds, values)) / self.total if self.total else 0.0

    @property
    def moved(self) -> float:
        """The bytes moved."""
        return float(np.dot(self.seconds, self.bandwidth))


def run(programs: Sequence[Program], pools: Sequence[int], bandwidths: Sequence[float]) -> Usage:
    """Run the programs to their ends; program i uses the memory of `pools[i]`, with that pool's bandwidth.

    At each moment a load proceeds at full speed, or as fast as its share of the bandwidth allows. Each core has the
    same share; what one does not use is divided over the others. Raise RuntimeError where all programs wait.
    """
    return _Run(programs, pools, bandwidths).run()


class _Run:
    """The state of all programs. A program without a load demands nothing, on no cores, and has endless work left."""

    def __init__(self, programs: Sequence[Program], pools: Sequence[int], bandwidths: Sequence[float]):
        self.programs = list(programs)
        self.members = [np.flatnonzero(np.asarray(pools) == pool) for pool in range(len(bandwidths))]
        self.bandwidths = bandwidths
        self.left = np.full(len(programs), inf)  # seconds at full speed
        self.least = np.zeros(len(programs))  # of which less is nothing
        self.demand, self.cores = np.zeros(len(programs)), np.zeros(len(programs))
        self.waiting: dict[int, Condition] = {}
        self.working = 0  # programs with loads
        self.usage = Usage()

    def run(self) -> Usage:
        for i in range(len(self.programs)):
            self._go_on(i)
        self._wake()
        while self.working:
            self._interval()
            self._wake()
        if self.waiting:
            raise RuntimeError(f"{len(self.waiting)} of {len(self.programs)} simulated instances wait for each other")
        return self.usage

    def _interval(self) -> None:
        """Pass the time until the next load is done, and go on with the programs whose loads are."""
        speeds = self._speeds()
        seconds = float((self.left / speeds).min())
        self.usage.seconds.append(seconds)
        self.usage.bandwidth.append(float(self.demand @ speeds))
        self.usage.cores.append(float(self.cores @ speeds))
        self.left -= seconds * speeds
        for i in np.flatnonzero(self.left <= self.least):
            self.working -= 1
            self._go_on(int(i))

    def _speeds(self) -> np.ndarray:
        """Return the speed of each program's load, 1 for full speed."""
        speeds = np.ones(len(self.programs))
        for members, bandwidth in zip(self.members, self.bandwidths, strict=True):
            demand = self.demand[members]
            if demand.sum() > bandwidth:
                share = fair_share(demand, self.cores[members], bandwidth) * self.cores[members]
                speeds[members] = np.divide(share, demand, out=np.ones(len(share)), where=demand > share)
        return speeds

    def _go_on(self, i: int) -> None:
        """Take the program's next load or condition, if it has one."""
        self.left[i], self.demand[i], self.cores[i] = inf, 0.0, 0.0
        for item in self.programs[i]:
            if not isinstance(item, Load):
                self.waiting[i] = item
                return
            if item.seconds > 0:
                self.left[i], self.least[i] = item.seconds, NONE * item.seconds
                self.demand[i], self.cores[i] = item.moved / item.seconds, item.cores
                self.working += 1
                return

    def _wake(self) -> None:
        """Go on with the programs whose conditions are true, until none is."""
        while ready := [i for i, condition in self.waiting.items() if condition()]:
            for i in ready:
                del self.waiting[i]
                self._go_on(i)


def fair_share(demands: np.ndarray, cores: np.ndarray, bandwidth: float) -> float:
    """Return a core's share of the bandwidth, which is less than the sum of the demands.

    Loads that demand less than their cores' shares get what they demand, and leave the rest to the others.
    """
    loads = sorted((demand / n, demand, n) for demand, n in zip(demands.tolist(), cores.tolist(), strict=True) if n)
    left, count = bandwidth, float(cores.sum())
    for a_core, demand, n in loads:
        if a_core * count > left:
            break
        left -= demand
        count -= n
    return left / count if count else inf
