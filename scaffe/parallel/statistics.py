"""Statistics: values that layers measure on the rows of a net, such as BatchNorm's means, averaged over all nets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.blob import on_host
from scaffe.blobs.packed import aligned_zeros
from scaffe.net.net import Net
from scaffe.parallel.world import World


class Statistics:
    """Average the measured blobs over all ranks and instances, each weighted by its fraction of the global batch.

    `nets` are this rank's: one, or those of its instances. The averages lie in the first's `packed.data`. The others
    share its parameters, but each gets memory of its own for what it measures.
    """

    def __init__(self, world: World, nets: Sequence[Net]):
        self.world, packed = world, nets[0].packed
        self._xp = packed.xp
        self.shares = [net.context.share for net in nets]
        self.values = packed.data[packed.statistics]
        self._others = [own_statistics(net) for net in nets[1:]] if self.values.size else []

    def average(self) -> None:
        """Replace the measured values by their averages, equal on all ranks, by one allreduce in float64. Collective.

        A single net, or one without such layers, sends nothing.
        """
        if not self.values.size or (self.world.size == 1 and not self._others):
            return
        measured = [on_host(self.values), *self._others]
        mine = sum(values.astype(np.float64) * share for values, share in zip(measured, self.shares, strict=True))
        self.values[...] = self._xp.asarray(self.world.allsums(mine))  # type: ignore[arg-type]
        self.spread()

    def spread(self) -> None:
        """Give the other instances the values, for example those of a snapshot."""
        for values in self._others:
            values[...] = self.values


def own_statistics(net: Net) -> np.ndarray:
    """Return new memory, flat, in which a net that shares all its parameters has its statistics from now on."""
    packed = net.packed
    start = packed.statistics.start
    memory = aligned_zeros(packed.statistics.stop - start)
    memory[...] = packed.data[packed.statistics]
    for parameter, part in zip(packed.parameters, packed.slices, strict=True):
        if parameter.statistic:
            for blob in parameter.blobs:
                blob.array = memory[part.start - start : part.stop - start].reshape(blob.shape)
    net.engine.moved()
    return memory
