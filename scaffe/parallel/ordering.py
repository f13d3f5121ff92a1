"""Ordering: how many parameters are broadcast while gradients are still being reduced.

Broadcasts share their links with the reduces that are in flight. If the links are the bottleneck, an early broadcast
delays the first layers' gradients, which are reduced last, and with them the next forward pass; and it brings the last
layers' parameters, which that pass needs last. If the backward pass takes longer than its reduces, the links are
unused for the difference. So as many bytes as fit into that time are broadcast as soon as they are updated. The others
follow the reduces, in the order in which the forward pass needs them. Between two nodes broadcasts and reduces use
opposite directions of the link, so all parameters are broadcast at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scaffe.parallel.aggregate import StagedAggregate
from scaffe.parallel.propagate import StagedPropagate


class Ordering:
    """The order of broadcasts, decided once from the times of the first iterations, alike on all ranks.

    `sums(values)` returns the sums of the values over all ranks.
    """

    ITERATIONS = 4  # of which the first is not used

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
        """Record the times of the last iteration. Collective.

        After ITERATIONS calls decide the order, and return the decision in a sentence; else return "".
        """
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
            f"{share:.0%} of the parameters are broadcast as they are updated, the others after the reduces, which "
            f"take {reduces / backward if backward else 0:.2f} of the backward pass"
        )


def share_ahead(backward: float, reduces: float) -> float:
    """Return the share of all bytes, 0 to 1, that can be broadcast in the time that reduces leave.

    `backward` and `reduces` are the seconds of the backward pass and of its reduces. A broadcast takes as long as a
    reduce of the same bytes.
    """
    return min(1.0, max(0.0, backward / reduces - 1)) if reduces > 0 else 1.0
