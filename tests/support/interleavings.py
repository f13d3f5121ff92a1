"""A made-up scheduler: it runs a gather's instances in one process, event after event, in any order.

An instance's thread is a generator. Between two of its events others run: while an addition is under way, and before
the next gift. Additions take effect as unfavourably as threads allow: sources are read when the addition begins, the
target is written when it ends. A bucket's sum is read at once when it is complete, since messages to other ranks may
begin then. A race is an error, whether or not the sums come out right.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from scaffe.parallel.instances.gathers.gather import RESULT, Addition, Gather

Choose = Callable[[int], int]  # which of so many events is next
ROUNDS = 400  # events after which a run counts as endless


class RaceError(Exception):
    """Two threads that touch the same elements, one of them writing, or a sum that never comes, or comes twice."""


class Interleaving:
    """One iteration of a gather over the gradients `diffs`, one array for each instance.

    `orders` holds the buckets of each instance in the order of its gifts.
    """

    def __init__(self, gather: Gather, diffs: Sequence[np.ndarray], orders: Sequence[Sequence[int]]):
        self.gather = gather
        self.starts = np.cumsum([0, *gather.lengths])
        self.buffers = [diff.copy() for diff in diffs]
        self.sums = np.full_like(diffs[0], np.nan)
        self.given: set[tuple[int, int]] = set()
        self.under_way: dict[int, tuple[Addition, np.ndarray]] = {}
        self.summed: list[int] = []
        self.waiting: set[int] = set()
        self.ready = {i: self._thread(i, order) for i, order in enumerate(orders)}

    def run(self, choose: Choose) -> np.ndarray:
        """Run all instances to their ends; return the sums."""
        for _ in range(ROUNDS):
            if not self.ready:
                break
            instance = sorted(self.ready)[choose(len(self.ready))]
            self._go_on(instance, self.ready.pop(instance))
        if self.ready or not self.gather.is_complete:
            raise RaceError(f"instances {sorted({*self.ready, *self.waiting})} wait forever")
        if sorted(self.summed) != list(range(len(self.gather.lengths))):
            raise RaceError(f"buckets {self.summed} are summed")
        return self.sums

    def _go_on(self, instance: int, thread: Iterator[None]) -> None:
        """Run a thread until others may run; at its end it waits, unless additions are left to it."""
        for _ in thread:
            self.ready[instance] = thread
            return
        self.waiting.add(instance)
        self._look(instance)

    def _thread(self, instance: int, order: Sequence[int]) -> Iterator[None]:
        """Give all buckets."""
        for n, bucket in enumerate(order):
            if n:
                yield
            due = self.gather.give(instance, bucket)
            self.given.add((instance, bucket))
            self._wake()
            yield from self._additions(instance, due)

    def _wake(self) -> None:
        """Let those who wait look, as GradientSums does after each gift and each sum."""
        for instance in sorted(self.waiting):
            self._look(instance)

    def _look(self, instance: int) -> None:
        if due := self.gather.owed(instance):
            self.waiting.discard(instance)
            self._go_on(instance, self._additions(instance, due))

    def _additions(self, instance: int, due: list[Addition]) -> Iterator[None]:
        while due:
            addition = due.pop(0)
            self.under_way[instance] = addition, self._begin(addition)
            yield
            self._end(*self.under_way.pop(instance))
            due += self.gather.added(addition)
            if self.gather.complete[addition.bucket]:
                self._read(addition.bucket)
                self._wake()

    def _read(self, bucket: int) -> None:
        """Read the bucket's sum."""
        if any(other.bucket == bucket for other, _ in self.under_way.values()):
            raise RaceError(f"bucket {bucket} is summed while additions to it are under way")
        self.summed.append(bucket)
        part = slice(self.starts[bucket], self.starts[bucket + 1])
        self.sums[part] = self.buffers[RESULT][part]

    def _begin(self, addition: Addition) -> np.ndarray:
        """Check what an addition touches; return the sum of its sources as they are now."""
        if len({*addition.sources}) < len(addition.sources):
            raise RaceError(f"{addition} adds a buffer twice")
        for instance in addition.sources:
            if (instance, addition.bucket) not in self.given:
                raise RaceError(f"{addition} touches instance {instance}'s gradients, which are not complete")
        for other, _ in self.under_way.values():
            if self._conflict(addition, other):
                raise RaceError(f"{addition} and {other} at the same time")
        if addition.bucket in self.summed:
            raise RaceError(f"{addition} after the bucket's sum")
        first, *rest = (self.buffers[source][self._part(addition)] for source in addition.sources)
        total = first.copy()
        for values in rest:
            total += values
        return total

    def _conflict(self, one: Addition, two: Addition) -> bool:
        if one.bucket != two.bucket or one.start >= two.stop or two.start >= one.stop:
            return False
        return two.target in one.sources or one.target in two.sources

    def _end(self, addition: Addition, total: np.ndarray) -> None:
        self.buffers[addition.target][self._part(addition)] = total

    def _part(self, addition: Addition) -> slice:
        start = self.starts[addition.bucket]
        return slice(start + addition.start, start + addition.stop)


def exhaustive(run: Callable[[Choose], np.ndarray]) -> Iterator[np.ndarray]:
    """Run all interleavings; iterate over their sums."""
    path: list[int] = []
    while True:
        taken: list[int] = []
        counts: list[int] = []

        def choose(count: int, path: list[int] = path, taken: list[int] = taken, counts: list[int] = counts) -> int:
            taken.append(path[len(taken)] if len(taken) < len(path) else 0)
            counts.append(count)
            return taken[-1]

        yield run(choose)
        while taken and taken[-1] + 1 == counts[-1]:
            taken.pop()
            counts.pop()
        if not taken:
            return
        path = [*taken[:-1], taken[-1] + 1]


def at_random(run: Callable[[Choose], np.ndarray], seed: int, runs: int) -> Iterator[np.ndarray]:
    """Run some interleavings at random; iterate over their sums."""
    draw = random.Random(seed)
    for _ in range(runs):
        yield run(draw.randrange)
