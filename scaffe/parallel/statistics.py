"""Statistics: values that layers measure on each rank's rows, such as BatchNorm's means, averaged over the ranks."""

from __future__ import annotations

import numpy as np

from scaffe.blob import on_host
from scaffe.packed import PackedParameters
from scaffe.parallel.world import World


class Statistics:
    """Average the measured blobs over the ranks, each weighted by `share`, its fraction of the global batch."""

    def __init__(self, world: World, packed: PackedParameters, share: float):
        self.world, self.share = world, share
        self.packed = packed
        self.values = packed.data[packed.statistics]

    def average(self) -> None:
        """Replace the measured values by their averages, equal on all ranks, by one allreduce in float64. Collective.

        A single rank, or a net without such layers, sends nothing.
        """
        if self.world.size > 1 and self.values.size:
            sums = self.world.allsums(on_host(self.values).astype(np.float64) * self.share)
            self.values[...] = self.packed.parameters[0].blob.xp.asarray(sums)
