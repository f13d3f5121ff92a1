"""Norms: the L2 norms of each layer's gradients and updates, in the iterations that are measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from math import sqrt
from threading import Lock

import numpy as np

from scaffe.blobs.packed import PackedParameters
from scaffe.parallel.buckets import Bucket
from scaffe.solvers.owned import Owned
from scaffe.solvers.rule import norm_of

Join = Callable[[np.ndarray], np.ndarray]  # the sums of values over all ranks


class Norms:
    """Sums of the squares of gradients, by parameter, added up as buckets are updated while `wanted`.

    Only a rank that updates parameters gets any. Where several ranks do, `join(values)` returns sums over all of them.
    Several threads may update different buckets.
    """

    join: Join | None = None

    def __init__(self, packed: PackedParameters, owned: Callable[[], Owned], passes: int):
        self._packed, self._owned, self._passes = packed, owned, passes
        self._lock = Lock()
        self._squares: defaultdict[int, float] = defaultdict(float)
        self.wanted = False

    def begin(self) -> None:
        """Add up the gradients of the next iteration."""
        self._squares.clear()
        self.wanted = True

    def add(self, bucket: Bucket) -> None:
        """Add a bucket's gradients, which are complete and not yet turned into updates."""
        packed, part = self._packed, bucket.part
        for i in bucket.parameters:
            packed.settle(i)
            whole = packed.slices[i]
            mine = packed.diff_of(slice(max(whole.start, part.start), min(whole.stop, part.stop)))
            square = (norm_of(mine) / self._passes) ** 2
            with self._lock:
                self._squares[i] += square

    def take(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the norms of gradients and updates, by layer, and add up no more.

        The gradients are those of the mean over iter_size passes, after clipping. The updates are what the rule leaves
        in the gradients' memory until the next iteration. Collective where several ranks update.
        """
        joins, self.wanted = self.wanted, False
        updates = {}
        for i in self._squares:
            self._packed.settle(i)
            parts = self._owned().within(self._packed.slices[i])
            updates[i] = sum(norm_of(self._packed.diff_of(part)) ** 2 for part in parts)
        squares = (
            joined(self._packed, self.join, self._squares, updates) if self.join and joins else (self._squares, updates)
        )
        return self._by_layer(squares[0]), self._by_layer(squares[1])

    def _by_layer(self, squares: Mapping[int, float]) -> dict[str, float]:
        sums: defaultdict[str, float] = defaultdict(float)
        for i in sorted(squares):
            sums[self._packed.parameters[i].layer] += squares[i]
        return {layer: sqrt(square) for layer, square in sums.items()}


def joined(packed: PackedParameters, join: Join, *found: Mapping[int, float]) -> list[dict[int, float]]:
    """Return the sums over all ranks of what each has found, by learned parameter. Collective."""
    learned = [i for i, parameter in enumerate(packed.parameters) if not parameter.statistic]
    sums = join(np.array([[one.get(i, 0.0) for i in learned] for one in found]))
    return [dict(zip(learned, map(float, row), strict=True)) for row in sums]
