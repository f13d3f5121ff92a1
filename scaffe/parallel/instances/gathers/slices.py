"""Slices: instance i sums slice i of all gradients (SingleCaffe, section IV.C)."""

from __future__ import annotations

from scaffe.parallel.instances.gathers.gather import LINE, Addition, Gather, register


class SlicesGather(Gather):
    """A bucket that all instances have given is cut into n slices, and instance i sums the slice i of all gradients.

    An instance finds its slices when it gives its next bucket, or when it waits for the sums; so no thread waits during
    backward. The order of adding is fixed: by number of the instance.

    Passes over the buffer: n reads and one write, n + 1.
    """

    name = "slices"

    def prepare(self) -> None:
        """Cut all buckets."""
        self._slices = [self._cut(bucket) for bucket in range(len(self.lengths))]

    def reset(self) -> None:
        """Expect all instances' gradients of each bucket."""
        self._owed: list[list[Addition]] = [[] for _ in self.domains]
        self._left = [len(slices) for slices in self._slices]

    def _cut(self, bucket: int) -> list[tuple[int, Addition]]:
        """Return the slices that are not empty, each with its instance; they start on cache lines."""
        length, size = self.lengths[bucket], self.size
        lines = -(-length // LINE)
        cuts = [min(length, LINE * (i * lines // size)) for i in range(size + 1)]
        slices = [(i, Addition(bucket, cuts[i], cuts[i + 1], tuple(range(size)))) for i in range(size)]
        return [(i, addition) for i, addition in slices if addition.stop > addition.start]

    def given(self, instance: int, bucket: int) -> list[Addition]:
        """Return no addition: the last gift leaves each instance its slice, see `owed`."""
        if self.all_given(bucket):
            for i, addition in self._slices[bucket]:
                self._owed[i].append(addition)
        return []

    def owed(self, instance: int) -> list[Addition]:
        """Return, once, the instance's slices of the buckets that all have given."""
        owed, self._owed[instance] = self._owed[instance], []
        return owed

    def added(self, addition: Addition) -> list[Addition]:
        """Count one slice of its bucket."""
        self._left[addition.bucket] -= 1
        self.complete[addition.bucket] = not self._left[addition.bucket]
        return []


register(SlicesGather)
