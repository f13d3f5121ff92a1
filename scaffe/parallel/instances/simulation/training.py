"""Training: the programs of a rank's instances over some iterations: forward, backward, gather, update.

The gathers are those of training, given buckets by the simulated clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from readers import share
from scaffe.parallel.instances.gathers.gather import Addition, Gather, find_gather
from scaffe.parallel.instances.simulation.events import Condition, Load, Program, Usage, run
from scaffe.parallel.instances.simulation.layers import FASTEST, LayerCost, access_rate, on_machine
from scaffe.parallel.instances.simulation.machine import Machine

BYTES = 4  # of an element
UPDATE = 5  # passes over the parameters' memory: read gradient, history and weights, write history and weights


@dataclass(frozen=True)
class Division:
    """How cores and images are divided: instances of `x` cores each, in launch groups `delay` seconds apart.

    `images` of an iteration go to each instance, or to all of them together if `divided`.
    """

    x: int
    images: int
    divided: bool = False
    gather: str = "slices"
    groups: int = 1
    delay: float = 0.0


@dataclass(frozen=True)
class Passes:
    """A net's passes in their order, each over `batch` images; forward passes alone are inference."""

    costs: Sequence[LayerCost]
    batch: int

    @property
    def gradients(self) -> list[float]:
        """The bytes of gradients of each pass that has some: the buckets."""
        return [cost.gradients for cost in self.costs if cost.gradients]


class Training:
    """The instances of a machine, and what they share.

    Between iterations they meet; in inference, without gradients, they don't.
    """

    def __init__(self, net: Passes, machine: Machine, division: Division, iterations: int, seed: int = 0):
        self.machine, self.division, self.iterations = machine, division, iterations
        self.passes = on_machine(net.costs, machine)
        self.batch, self.gradients = net.batch, net.gradients
        self.size = machine.cores // division.x
        covered = machine.covered(division.x)
        self.pools = [i * division.x // (covered * machine.domain_cores) for i in range(self.size)]
        self.bandwidths = [covered * machine.bandwidth] * (machine.domains // covered)
        self.core_rate = access_rate(self.passes) or FASTEST
        self.random = [np.random.default_rng((seed, i)) for i in range(self.size)]
        self.gather = self._gather()
        self.changes = 0  # of the gather's state
        self.met = 0

    def run(self) -> Usage:
        """Run all instances to their ends."""
        return run([self._program(i) for i in range(self.size)], self.pools, self.bandwidths)

    @property
    def images(self) -> int:
        """The images of an iteration, of all instances."""
        return self.division.images * (1 if self.division.divided else self.size)

    def _gather(self) -> Gather | None:
        if self.size == 1 or not self.gradients:
            return None
        kind, number = find_gather(self.division.gather)
        return kind(self.pools, [max(1, round(one / BYTES)) for one in self.gradients], number)

    def _program(self, i: int) -> Program:
        share_of_batch = self._images(i) / self.batch
        late = i % self.division.groups * self.division.delay
        for _ in range(self.iterations):
            if late:
                yield Load(late, 0.0, 0)
            bucket = 0
            for cost in self.passes:
                yield from self._pass(i, cost, share_of_batch)
                if cost.gradients:
                    yield from self._give(i, bucket)
                    bucket += 1
            yield from self._end(i)

    def _images(self, i: int) -> int:
        if not self.division.divided:
            return self.division.images
        first, stop = share(self.division.images, i, self.size)
        return stop - first

    def _pass(self, i: int, cost: LayerCost, share_of_batch: float) -> Program:
        """Compute a layer; an instance's threads wait for the slowest of them, then in the barrier."""
        load = cost.load(share_of_batch, self.division.x, self.machine)
        slower = self.random[i].normal(0.0, self.machine.jitter, self.division.x).max()
        yield replace(load, seconds=load.seconds * float(np.exp(slower)))
        if self.division.x > 1:
            yield Load(self.machine.barrier, 0.0, 0)

    def _give(self, i: int, bucket: int) -> Program:
        if self.gather:
            due = self.gather.give(i, bucket)
            self.changes += 1
            yield from self._add(due)

    def _add(self, due: list[Addition]) -> Program:
        """Do additions and those that follow, by one thread, as GradientSums does."""
        assert self.gather is not None
        while due:
            addition = due.pop(0)
            yield self._memory(BYTES * addition.moved, 1)
            due += self.gather.added(addition)
            self.changes += 1

    def _memory(self, moved: float, cores: int) -> Load:
        return Load(moved / (cores * self.core_rate), moved, cores)

    def _end(self, i: int) -> Program:
        """Finish the gather, update a part of the domain's weights, and wait for the others."""
        if not self.gradients:
            return
        if self.gather:
            yield from self._finish(i, self.gather)
        parts = self.pools.count(self.pools[i])
        yield self._memory(UPDATE * sum(self.gradients) / parts, self.division.x)
        if self.gather:
            yield self._meeting(self.gather)

    def _finish(self, i: int, gather: Gather) -> Program:
        while True:
            if due := gather.owed(i):
                yield from self._add(due)
            elif gather.is_complete:
                return
            else:
                yield self._change()

    def _change(self) -> Condition:
        """Return the condition that the gather's state has changed since now."""
        seen = self.changes
        return lambda: self.changes > seen

    def _meeting(self, gather: Gather) -> Condition:
        """Return the condition that all instances have come here; the last one begins the gather's next iteration."""
        self.met += 1
        if self.met % self.size == 0:
            gather.begin()
        goal = -(-self.met // self.size) * self.size
        return lambda: self.met >= goal
