"""Submissions: one instance's side of aggregation, layer by layer, with the methods of an Aggregate that it calls."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.blobs.packed import PackedParameters
from scaffe.parallel.buckets import Bucket
from scaffe.parallel.instances.gradient_sums import GradientSums


class Submissions:
    """Give an instance's buckets to the `sums`, each once the gradients of all its layers are complete.

    `packed` holds the instance's gradients, which are those that `sums` adds. All methods are called by the instance's
    thread; they call no MPI. Raise BrokenOffError where another instance has failed.
    """

    def __init__(self, instance: int, packed: PackedParameters, buckets: Sequence[Bucket], sums: GradientSums):
        self.instance, self.packed, self.buckets, self.sums = instance, packed, buckets, sums
        self._users: dict[int, list[int]] = {}  # buckets by layer
        for k, bucket in enumerate(buckets):
            for layer in bucket.layers:
                self._users.setdefault(layer, []).append(k)
        self._missing: list[int] = []  # by bucket: layers whose gradients are not complete yet

    def begin(self) -> None:
        """Expect the gradients of all layers; precedes the last backward pass of an iteration."""
        self._missing = [len(bucket.layers) for bucket in self.buckets]

    def submit(self, layer: int) -> None:
        """Mark a layer's gradients as complete in this instance. It waits for no other instance."""
        for k in self._users.get(layer, ()):
            self._missing[k] -= 1
            if not self._missing[k]:
                for i in self.buckets[k].parameters:
                    self.packed.settle(i)
                self.sums.give(self.instance, k)

    def finish(self) -> None:
        """Help with the sums until all are complete."""
        self.sums.finish(self.instance)
