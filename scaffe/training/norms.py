"""Norms: the L2 norms of each layer's gradients and updates, in the iterations that are measured."""

from __future__ import annotations

from collections import defaultdict
from math import sqrt
from threading import Lock

from scaffe.packed import PackedParameters
from scaffe.parallel.buckets import Bucket
from scaffe.solvers.rule import norm_of


class Norms:
    """Sums of the squares of gradients, by parameter, added up as buckets are updated while `wanted`.

    Only a rank that updates parameters gets any. Several threads may update different buckets.
    """

    def __init__(self, packed: PackedParameters, passes: int):
        self._packed, self._passes = packed, passes
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
        in the gradients' memory until the next iteration.
        """
        self.wanted = False
        updates = {}
        for i in self._squares:
            self._packed.settle(i)
            updates[i] = norm_of(self._packed.diff_of(self._packed.slices[i])) ** 2
        return self._by_layer(self._squares), self._by_layer(updates)

    def _by_layer(self, squares: dict[int, float]) -> dict[str, float]:
        sums: defaultdict[str, float] = defaultdict(float)
        for i in sorted(squares):
            sums[self._packed.parameters[i].layer] += squares[i]
        return {layer: sqrt(square) for layer, square in sums.items()}
