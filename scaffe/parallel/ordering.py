"""Ordering: which parameters go out while gradients still come in.

A broadcast under way shares its links with the reduces. Where links are what is waited for, it makes the first layers'
gradients, the last to be reduced, later, and with them the next forward pass, while what it brings is needed last.
Where the backward pass takes longer than its reduces, links would else be idle meanwhile. So let as many bytes go out
at once as fit into that time, and the others after the reduces, in the order in which the forward pass needs them.
Between two nodes the two kinds go opposite ways, and everything goes out at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scaffe.parallel.aggregate import StagedAggregate
from scaffe.parallel.propagate import StagedPropagate


class Ordering:
    """The order of broadcasts, decided once by what the first iterations took, the same on all ranks."""

    ITERATIONS = 4  # the first doesn't count

    def __init__(
        self,
        propagate: StagedPropagate,
        aggregate: StagedAggregate,
        sums: Callable[[np.ndarray], np.ndarray],
    ):
        self._propagate, self._aggregate, self._sums = propagate, aggregate, sums
        self._seconds: list[tuple[float, float]] = []

    @property
    def is_over(self) -> bool:
        """Whether the order has been decided."""
        return len(self._seconds) == self.ITERATIONS

    def took(self) -> str:
        """Take note of the last iteration; reorder after the last to be noted, and return why. Collective."""
        if self.is_over:
            return ""
        self._seconds.append(self._aggregate.seconds)
        if not self.is_over:
            return ""
        backward, reduces = self._sums(np.median(self._seconds[1:], axis=0))
        share = share_ahead(backward, reduces)
        if share:
            self._propagate.reorder(share)
        return (
            f"{share:.0%} of the parameters go out as they are updated, the others after the reduces, which take "
            f"{reduces / backward if backward else 0:.2f} of the backward pass"
        )


def share_ahead(backward: float, reduces: float) -> float:
    """Return the share of bytes that can go out in the time of a backward pass that reduces leave, 0 to 1."""
    return min(1.0, max(0.0, backward / reduces - 1)) if reduces > 0 else 1.0
