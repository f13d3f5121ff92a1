"""WeightCopy: the parameters' copy in the memory of a NUMA domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np

from scaffe.parallel.buckets import Bucket
from scaffe.parallel.replica import Weights


class WeightCopy(Weights):
    """A domain's copy of the updated parameters, which all instances of the domain read.

    In each iteration a bucket is fetched from `source` by the first instance that needs it, while the domain's other
    instances fetch other buckets, or wait for it. ParaX (section 4.2) instead applies the update to each domain's copy:
    that reads the sum and reads and writes history and parameters in each domain, 20 bytes for each parameter where
    a fetch moves 8. The bits are the same.

    `source` and `copy` are flat and have the layout of the packed parameters. `changed(part)` is called for each part
    of the copy that was fetched.
    """

    def __init__(
        self,
        source: np.ndarray,
        copy: np.ndarray,
        buckets: Sequence[Bucket],
        changed: Callable[[slice], object] = lambda part: None,
    ):
        self.source, self.copy, self._changed = source, copy, changed
        self._parts = [bucket.part for bucket in buckets]
        self._locks = [Lock() for _ in buckets]
        self._fetched = [0] * len(buckets)  # the iteration, by bucket
        self._iteration = 0
        self._needed: dict[int, list[int]] = {}  # buckets by layer
        for k, bucket in enumerate(buckets):
            for layer in bucket.layers:
                self._needed.setdefault(layer, []).append(k)

    def begin(self) -> None:
        """Begin an iteration, or a pass after parameters have changed. No instance may be computing."""
        self._iteration += 1

    def fetch(self, layer: int) -> None:
        """Return once a layer's parameters are here. Called by an instance's thread, when they are in `source`."""
        missing = [k for k in self._needed.get(layer, ()) if self._fetched[k] != self._iteration]
        for blocking in (False, True):  # first those that no other instance fetches
            for k in missing:
                if self._locks[k].acquire(blocking):
                    self._copy(k)
                    self._locks[k].release()

    def _copy(self, k: int) -> None:
        if self._fetched[k] != self._iteration:
            np.copyto(self.copy[self._parts[k]], self.source[self._parts[k]])
            self._changed(self._parts[k])
            self._fetched[k] = self._iteration
