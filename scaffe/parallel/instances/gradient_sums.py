"""GradientSums: the sums of the instances' gradients, bucket by bucket, by the instances' own threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Condition

import numpy as np

from scaffe.parallel.instances.gathers.gather import RESULT, Addition, Gather

BLOCK = 1 << 15  # elements that are added at once: the sum's 128 KB stay in the core's cache


class BrokenOffError(RuntimeError):
    """The sums can't be completed, since an instance has failed; its own error says why."""


class GradientSums:
    """Sum the flat gradients `diffs`, one array for each instance, into `result` as a gather allows.

    `parts` holds the slice of each bucket. `result` may be `diffs[0]` where `gather.in_place`. No other memory is
    used; `diffs` can be overwritten with partial sums. `summed(bucket)` is called once for each bucket, by the thread
    that completes its sum, and may run in several threads at once for different buckets. `waiting()` returns a context
    manager, in which a thread waits for other instances. Raise ValueError for arrays that don't fit.

    In each iteration the scheduler calls `begin`, each instance's thread `give` for each bucket, then `finish`.
    """

    def __init__(
        self,
        gather: Gather,
        diffs: Sequence[np.ndarray],
        result: np.ndarray,
        parts: Sequence[slice],
        summed: Callable[[int], object] = lambda bucket: None,
        waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
    ):
        if len(diffs) != gather.size or any(diff.shape != result.shape for diff in diffs):
            raise ValueError(f"{gather.size} gradients of shape {result.shape} are needed")
        if any(np.may_share_memory(diff, result) for diff in diffs[gather.in_place :]):
            raise ValueError(f"the result of gather '{gather.name}' needs memory of its own")
        if tuple(part.stop - part.start for part in parts) != gather.lengths:
            raise ValueError("the buckets have other lengths than the gather's")
        self.gather, self.summed, self._waiting = gather, summed, waiting
        self._buffers = {RESULT: result, **dict(enumerate(diffs))}
        self._parts = tuple(parts)
        self._changed = Condition()
        self._error: BaseException | None = None
        self.moved = 0  # elements that the additions of this iteration have read and written

    def begin(self) -> None:
        """Begin an iteration. No instance's thread may be in `give` or `finish`."""
        with self._changed:
            self.gather.begin()
            self._error = None
            self.moved = 0

    def give(self, instance: int, bucket: int) -> None:
        """Note that an instance's gradients of a bucket are complete, and do the additions that are due.

        It waits for no other instance. Called by the instance's thread. Raise BrokenOffError after `break_off`.
        """
        with self._changed:
            self._check()
            due = self.gather.give(instance, bucket)
            self._changed.notify_all()  # a gift can leave additions to those who wait
        self._do(due)

    def finish(self, instance: int) -> None:
        """Do the additions that are left to an instance, until all sums are complete.

        Called by the instance's thread. Raise BrokenOffError after `break_off`.
        """
        while due := self._wait(instance):
            self._do(due)

    def _wait(self, instance: int) -> list[Addition]:
        """Return the additions that are left to an instance, once there are some; none once all sums are complete."""
        with self._changed:
            self._check()
            if (due := self.gather.owed(instance)) or self.gather.is_complete:
                return due
            with self._waiting():
                while not (due := self.gather.owed(instance)) and not self.gather.is_complete:
                    self._changed.wait()
                    self._check()
            return due

    def break_off(self, error: BaseException) -> None:
        """End all waits with BrokenOffError, whose cause is an instance's error. Any thread can call it."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _check(self) -> None:
        if self._error is not None:
            raise BrokenOffError("another instance has failed") from self._error

    def _do(self, due: list[Addition]) -> None:
        """Do additions, and those that follow from them."""
        while due:
            addition = due.pop(0)
            self.add(addition)
            with self._changed:
                due += self.gather.added(addition)
                self.moved += addition.moved
                if complete := self.gather.complete[addition.bucket]:
                    self._changed.notify_all()
            if complete:
                self.summed(addition.bucket)

    def add(self, addition: Addition) -> None:
        """Do an addition. A timeline replaces this method by a timed one."""
        start = self._parts[addition.bucket].start
        part = slice(start + addition.start, start + addition.stop)
        add([self._buffers[source][part] for source in addition.sources], self._buffers[addition.target][part])


def add(sources: Sequence[np.ndarray], out: np.ndarray, block: int = BLOCK) -> None:
    """Write the sum of flat arrays into `out`, added in their order; `out` may be the first of them.

    Block by block, so that each source is read once from memory, and `out` is written once.
    """
    first, rest = sources[0], sources[1:]
    for start in range(0, out.size, block):
        part = slice(start, start + block)
        total = out[part]
        if not rest:
            total[...] = first[part]
            continue
        np.add(first[part], rest[0][part], out=total)
        for other in rest[1:]:
            np.add(total, other[part], out=total)
