"""The rates of the cores, alone and together: a large matrix product, and a sum of arrays that no cache holds.

    python jobs/bench/cores.py

They bound what n instances can gain over one: twice the cores do not have twice the memory bandwidth.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from core_rate import CoreRate
from threadpoolctl import threadpool_limits

from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.places import place
from scaffe.parallel.instances.topology import read_topology

PRODUCT = 1024  # rows
ARRAY = 1 << 26  # elements: 256 MB


class Cores:
    """The first `count` cores of this process, each with a thread bound to it. A context manager."""

    def __init__(self, count: int):
        threadpool_limits(1)
        self._crew = Crew(place(str(count), read_topology()))

    def together(self, used: int, rate: Callable[[], float]) -> float:
        """Return the sum of `rate()` on `used` cores at the same time."""
        found = [0.0] * used

        def work(i: int) -> None:
            if i < used:
                found[i] = rate()

        self._crew.run(work)
        return sum(found)

    def gflops(self, used: int) -> float:
        """Return the GFLOP/s of a matrix product on each of `used` cores."""
        return self.together(used, lambda: CoreRate("float32", PRODUCT).best())

    def __enter__(self) -> Cores:
        return self

    def __exit__(self, *_: object) -> None:
        self._crew.close()


def bandwidth(count: int = ARRAY) -> float:
    """Return the GB/s that one thread reads and writes while it adds two arrays into a third."""
    a, b, out = (np.full(count, i, np.float32) for i in range(3))
    found = []
    for _ in range(5):
        start = time.perf_counter()
        np.add(a, b, out=out)
        found.append(3e-9 * out.nbytes / (time.perf_counter() - start))
    return max(found)


def main() -> None:
    """Print the rates of one core and of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, default=len(read_topology().cores), help="default: all, %(default)s")
    count = parser.parse_args().cores
    with Cores(count) as cores:
        for name, rate in (("GFLOP/s", cores.gflops), ("GB/s", lambda used: cores.together(used, bandwidth))):
            one, all_cores = rate(1), rate(count)
            print(f"{name:8} one core {one:7.1f}, {count} cores {all_cores:7.1f}, {all_cores / one:.2f} times as much")


if __name__ == "__main__":
    main()
