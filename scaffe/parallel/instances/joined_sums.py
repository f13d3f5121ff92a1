"""JoinedSums: numbers that a layer sums over all instances of all ranks, such as the labels that count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import Condition

import numpy as np

from scaffe.parallel.instances.gradient_sums import BrokenOffError

Summing = Callable[[Sequence[float]], np.ndarray]


def _here(values: Sequence[float]) -> np.ndarray:
    return np.asarray(values)


class JoinedSums:
    """Sum the instances' numbers, in the order of the instances, then the result over the ranks.

    `over_ranks(values)` is called by one instance's thread, the last that comes. All instances ask for the same sums in
    the same order, as ranks do. `waiting()` returns a context manager, in which a thread waits for other instances.

    `computes()` returns whether the calling thread is an instance's. Another's, in which a user runs one net, waits for
    no instance: it gets the sums of that net's numbers over the ranks.
    """

    def __init__(
        self,
        instances: int,
        over_ranks: Summing = _here,
        waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
        computes: Callable[[], bool] = lambda: True,
    ):
        self._computes = computes
        self.size, self.over_ranks, self._waiting = instances, over_ranks, waiting
        self._come: dict[int, np.ndarray] = {}
        self._sums = np.zeros(0)
        self._round = 0
        self._changed = Condition()
        self._error: BaseException | None = None

    def of(self, instance: int) -> Summing:
        """Return what an instance's context calls: it waits for all instances, and returns the sums, float64."""
        return partial(self._join, instance)

    def begin(self) -> None:
        """Begin an iteration. No instance may be waiting."""
        with self._changed:
            self._come, self._error = {}, None

    def break_off(self, error: BaseException) -> None:
        """End all waits with BrokenOffError, whose cause is an instance's error. Any thread can call it."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _join(self, instance: int, values: Sequence[float]) -> np.ndarray:
        if self.size == 1 or not self._computes():
            return self.over_ranks(values)
        with self._changed:
            self._come[instance] = np.array(values, np.float64)
            this_round, is_last = self._round, len(self._come) == self.size
            if not is_last:
                with self._waiting():
                    self._changed.wait_for(lambda: self._round != this_round or self._error)
            if self._error:
                raise BrokenOffError("another instance has failed") from self._error
        if is_last:
            self._share()
        return self._sums  # no later round ends before this instance has come to it

    def _share(self) -> None:
        """Sum what has come, and wake those who wait. The lock is free meanwhile, for `break_off`."""
        sums = self.over_ranks(sum(self._come[i] for i in range(self.size)))  # type: ignore[arg-type]
        with self._changed:
            self._sums, self._come = sums, {}
            self._round += 1
            self._changed.notify_all()
