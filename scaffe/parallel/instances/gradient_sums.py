"""GradientSums: the sums of the instances' gradients, bucket by bucket, by the instances' own threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import combinations
from threading import Condition

import numpy as np

from scaffe.parallel.instances.gathers.gather import RESULT, Addition, Gather

Work = tuple[list[Addition], int | None]  # additions, or a bucket whose sum is complete
BLOCK = 1 << 15  # elements that are added at once: the sum's 128 KB stay in the core's cache


class BrokenOffError(RuntimeError):
    """The sums can't be completed, since an instance has failed; its own error says why."""


class GradientSums:
    """Sum the flat gradients `diffs`, one array for each instance, in the first of them, as a gather allows.

    `parts` holds the slice of each bucket. No other memory is used. The sums lie in `result`, which is instance 0's
    array; the others hold their gradients or partial sums afterwards. Raise ValueError for arrays that don't fit.

    `summed(bucket)` is called once for each bucket whose sum is complete: by the thread that completed it, unless
    another waits in `finish`, which then takes it. No lock is held, and several threads can call it at once for
    different buckets. Nothing is added to the bucket any more. An error that it raises ends all waits, and is raised by
    that thread.

    `waiting()` returns a context manager, in which a thread waits for other instances.

    In each iteration the scheduler calls `begin`, each instance's thread `give` for each bucket, then `finish`.
    """

    def __init__(
        self,
        gather: Gather,
        diffs: Sequence[np.ndarray],
        parts: Sequence[slice],
        summed: Callable[[int], object] = lambda bucket: None,
        waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
    ):
        if len(diffs) != gather.size or len({diff.shape for diff in diffs}) > 1:
            raise ValueError(f"{gather.size} gradients of one shape are needed")
        if any(np.may_share_memory(one, two) for one, two in combinations(diffs, 2)):
            raise ValueError("each instance needs memory of its own for its gradients")
        if tuple(part.stop - part.start for part in parts) != gather.lengths:
            raise ValueError("the buckets have other lengths than the gather's")
        self.gather, self.summed, self._waiting = gather, summed, waiting
        self.result = diffs[RESULT]
        self._diffs = tuple(diffs)
        self._parts = tuple(parts)
        self._changed = Condition()
        self._error: BaseException | None = None
        self._summed: deque[int] = deque()  # buckets for which `summed` is still to be called
        self._idle = 0  # threads that wait in `finish`
        self.moved = 0  # elements that the additions of this iteration have read and written

    def begin(self) -> None:
        """Begin an iteration. No instance's thread may be in `give` or `finish`."""
        with self._changed:
            self.gather.begin()
            self._error, self._idle = None, 0
            self._summed.clear()
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
        """Do the additions that are left to an instance, and calls of `summed`, until all sums are complete.

        Called by the instance's thread. Raise BrokenOffError after `break_off`.
        """
        while work := self._wait(instance):
            self._do(*work)

    def _wait(self, instance: int) -> Work | None:
        """Return what is left to an instance, once there is something; None once there is no more."""
        with self._changed:
            self._check()
            if (work := self._left(instance)) or self.gather.is_complete:
                return work
            with self._waiting():
                self._idle += 1
                while not (work := self._left(instance)) and not self.gather.is_complete:
                    self._changed.wait()
                    self._check()
                self._idle -= 1
            return work

    def _left(self, instance: int) -> Work | None:
        """Return the additions that are left to an instance, or a bucket to call `summed` for, if there is any."""
        if due := self.gather.owed(instance):
            return due, None
        return ([], self._summed.popleft()) if self._summed else None

    def break_off(self, error: BaseException) -> None:
        """End all waits with BrokenOffError, whose cause is an instance's error. Any thread can call it."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _check(self) -> None:
        if self._error is not None:
            raise BrokenOffError("another instance has failed") from self._error

    def _do(self, due: list[Addition], bucket: int | None = None) -> None:
        """Call `summed` for a bucket; do additions, and what follows from them. An error ends all waits."""
        try:
            if bucket is not None:
                self.summed(bucket)
            self._do_all(due)
        except BaseException as error:
            self.break_off(error)
            raise

    def _do_all(self, due: list[Addition]) -> None:
        while due:
            addition = due.pop(0)
            self.add(addition)
            bucket = None
            with self._changed:
                due += self.gather.added(addition)
                self.moved += addition.moved
                if self.gather.complete[addition.bucket]:
                    self._summed.append(addition.bucket)
                    self._changed.notify_all()
                if len(self._summed) > self._idle:  # the rest is taken by those who wait in `finish`
                    bucket = self._summed.popleft()
            if bucket is not None:
                self.summed(bucket)

    def add(self, addition: Addition) -> None:
        """Do an addition. A timeline replaces this method by a timed one."""
        start = self._parts[addition.bucket].start
        part = slice(start + addition.start, start + addition.stop)
        add(*(self._diffs[source][part] for source in addition.sources))


def add(total: np.ndarray, *others: np.ndarray, block: int = BLOCK) -> None:
    """Add other flat arrays to `total`, in their order.

    Block by block, so that `total` and each of the others are read once from memory, and `total` is written once.
    """
    for start in range(0, total.size, block):
        part = slice(start, start + block)
        for other in others:
            np.add(total[part], other[part], out=total[part])
