"""Statistics: what layers measure on each rank's rows, such as BatchNorm's means, made one over the ranks."""

from __future__ import annotations

import numpy as np

from scaffe.packed import PackedParameters
from scaffe.parallel.world import World


class Statistics:
    """Average the measured blobs over the ranks, each weighted by `share`, its part of the global batch."""

    def __init__(self, world: World, packed: PackedParameters, share: float):
        self.world, self.share = world, share
        self.values = packed.data[packed.statistics]

    def average(self) -> None:
        """Give all ranks the same averages, by one small allreduce in float64. Collective."""
        if self.world.size > 1 and self.values.size:
            self.values[...] = self.world.allsums(self.values.astype(np.float64) * self.share)
