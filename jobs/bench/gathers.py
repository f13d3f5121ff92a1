"""How long n instances take to sum their gradients and to update the weights, and how many bytes that moves.

    python jobs/bench/gathers.py [--count ELEMENTS] [--instances 2,4,8,16] [--turns 5]

Scaffe's gathers are compared with a parameter server, to which gradients are added and from which
weights are copied, and with a ring
of instances that each have weights of their own: figures 16 and 17 of the ParaX paper. Each instance is a thread;
there may be more of them than cores. Gradients are complete when an iteration starts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median
from threading import Barrier, Lock

import numpy as np

from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.gradient_sums import GradientSums, add
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.places import Place, place
from scaffe.parallel.instances.topology import read_topology

RESNET_50 = 25_600_000  # parameters
BUCKET = 1 << 20  # elements: 4 MB, as --bucket-bytes has it
RATE = np.float32(0.01)
OURS = ("server", "slices", "tree:2")


def cut(count: int, parts: int) -> list[slice]:
    """Return consecutive slices of `count` elements that start on cache lines."""
    lines = -(-count // 16)
    cuts = [min(count, 16 * (i * lines // parts)) for i in range(parts + 1)]
    return [slice(a, b) for a, b in zip(cuts, cuts[1:], strict=False)]


def update(weights: np.ndarray, gradients: np.ndarray) -> int:
    """Update weights by gradients; return the elements read and written, less those in cache."""
    step = np.empty(min(weights.size, 1 << 15), np.float32)
    for start in range(0, weights.size, 1 << 15):
        part = slice(start, min(start + (1 << 15), weights.size))
        scaled = step[: part.stop - part.start]
        np.multiply(gradients[part], RATE, out=scaled)
        np.subtract(weights[part], scaled, out=weights[part])
    return 3 * weights.size


class Way:
    """Base class: the iterations of n instances over `count` gradients; `moved` counts elements read and written."""

    def __init__(self, instances: int, count: int):
        self.size, self.count = instances, count
        self.buckets = cut(count, -(-count // BUCKET))
        self.diffs = [np.ones(count, np.float32) for _ in range(instances)]
        self.barrier = Barrier(instances)
        self.moves = [0] * instances  # by instance

    def begin(self) -> None:
        """Set the state to that before an iteration, outside of its time."""
        for diff in self.diffs:
            diff.fill(1)
        self.moves = [0] * self.size

    def iterate(self, instance: int) -> None:
        """Do one instance's part; afterwards the weights that it uses are updated."""
        raise NotImplementedError

    @property
    def moved(self) -> int:
        """Elements that the last iteration read and wrote."""
        return sum(self.moves)

    def sums(self) -> np.ndarray:
        """Return the sums of the last iteration, for a check."""
        raise NotImplementedError


class Ours(Way):
    """A gather over shared weights, which all instances update by slices."""

    def __init__(self, instances: int, count: int, gather: str, domains: list[int]):
        super().__init__(instances, count)
        self.weights = np.zeros(count, np.float32)
        lengths = [part.stop - part.start for part in self.buckets]
        made = Instances(str(instances), gather).make_gather(domains, lengths)
        self.gradient_sums = GradientSums(made, self.diffs, self.buckets)
        self.slices = cut(count, instances)

    def begin(self) -> None:
        """Begin anew."""
        super().begin()
        self.gradient_sums.begin()

    def iterate(self, instance: int) -> None:
        """Give all buckets, the last layers' first; then update a slice."""
        for bucket in reversed(range(len(self.buckets))):
            self.gradient_sums.give(instance, bucket)
        self.gradient_sums.finish(instance)
        mine = self.slices[instance]
        self.moves[instance] = update(self.weights[mine], self.gradient_sums.result[mine])
        self.barrier.wait()

    @property
    def moved(self) -> int:
        """Elements of the additions and of the update."""
        return super().moved + self.gradient_sums.moved

    def sums(self) -> np.ndarray:
        """Return the sums."""
        return self.gradient_sums.result


class ParameterServer(Way):
    """Instances add gradients to the server's sums, and copy the new weights from there (ParaX, section 4.2)."""

    def __init__(self, instances: int, count: int):
        super().__init__(instances, count)
        self.total = np.zeros(count, np.float32)
        self.weights = [np.zeros(count, np.float32) for _ in range(instances + 1)]  # the last are the server's
        self.locks = [Lock() for _ in self.buckets]
        self.come = [0] * len(self.buckets)

    def begin(self) -> None:
        """Begin anew."""
        super().begin()
        self.come = [0] * len(self.buckets)

    def iterate(self, instance: int) -> None:
        """Push each bucket; the last to push updates it. Then pull all weights."""
        for bucket in reversed(range(len(self.buckets))):
            with self.locks[bucket]:
                self._push(instance, bucket)
        self.barrier.wait()
        np.copyto(self.weights[instance], self.weights[-1])
        self.moves[instance] += 2 * self.count

    def _push(self, instance: int, bucket: int) -> None:
        part = self.buckets[bucket]
        given, total, length = self.diffs[instance][part], self.total[part], part.stop - part.start
        if self.come[bucket]:
            add(total, given)
        else:
            np.copyto(total, given)
        self.moves[instance] += (3 if self.come[bucket] else 2) * length
        self.come[bucket] += 1
        if self.come[bucket] == self.size:
            self.moves[instance] += update(self.weights[-1][part], total)

    def sums(self) -> np.ndarray:
        """Return the sums."""
        return self.total


class Ring(Way):
    """A ring allreduce over the instances' gradients; then each updates weights of its own."""

    def __init__(self, instances: int, count: int):
        super().__init__(instances, count)
        self.weights = [np.zeros(count, np.float32) for _ in range(instances)]
        self.chunks = cut(count, instances)

    def iterate(self, instance: int) -> None:
        """Add n - 1 chunks from the left neighbour, copy n - 1 sums from it, and update."""
        mine, left = self.diffs[instance], self.diffs[instance - 1]
        for step in range(self.size - 1):
            chunk = self.chunks[(instance - step - 1) % self.size]
            add(mine[chunk], left[chunk])
            self.moves[instance] += 3 * (chunk.stop - chunk.start)
            self.barrier.wait()
        for step in range(self.size - 1):
            chunk = self.chunks[(instance - step) % self.size]
            np.copyto(mine[chunk], left[chunk])
            self.moves[instance] += 2 * (chunk.stop - chunk.start)
            self.barrier.wait()
        self.moves[instance] += update(self.weights[instance], mine)

    def sums(self) -> np.ndarray:
        """Return the sums."""
        return self.diffs[0]


def ways(instances: int, count: int, domains: list[int]) -> Iterator[tuple[str, Callable[[], Way]]]:
    """Iterate over the names of all ways, with what makes each."""
    yield "parameter server", lambda: ParameterServer(instances, count)
    yield "ring", lambda: Ring(instances, count)
    for gather in OURS:
        yield gather, lambda gather=gather: Ours(instances, count, gather, domains)


def timed(way: Way, places: list[Place], turns: int) -> tuple[float, int]:
    """Return the seconds of an iteration, the median of `turns` after one that is not counted, and what one moved."""
    seconds = []
    with Crew(places) as crew:
        for _ in range(turns + 1):
            way.begin()
            begin = time.perf_counter()
            crew.run(way.iterate)
            seconds.append(time.perf_counter() - begin)
    np.testing.assert_allclose(way.sums(), way.size, rtol=1e-5)
    return median(seconds[1:]), way.moved


def table(instances: int, count: int, turns: int) -> None:
    """Print a line for each way. One at a time has memory, since each has a copy of all gradients."""
    places = place(str(instances), read_topology(), oversubscribe=True)
    base = 0.0
    for name, make in ways(instances, count, [one.domain for one in places]):
        seconds, moved = timed(make(), places, turns)
        base = base or seconds
        passes, gigabytes = moved / count, 4e-9 * moved
        print(
            f"{instances:>9}  {name:<17}{1e3 * seconds:>9.1f}{seconds / base:>8.2f}{passes:>9.1f}{gigabytes:>8.2f}",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=RESNET_50, help="gradients of an instance (default: %(default)s)")
    parser.add_argument("--instances", default="2,4,8,16", metavar="N,N", help="numbers (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=5, help="iterations of each way (default: %(default)s)")
    given = parser.parse_args()
    print("instances  way                     ms   of PS   passes      GB")
    for instances in given.instances.split(","):
        table(int(instances), given.count, given.turns)


if __name__ == "__main__":
    main()
