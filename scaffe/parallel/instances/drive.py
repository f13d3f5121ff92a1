"""CrewDrive: a drive by the instances' threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from scaffe.monitor.record import INSTANCES, RankRecord
from scaffe.parallel.drive import Threads
from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.gradient_sums import BrokenOffError


class CrewDrive(Threads):
    """The instances' threads compute while the main thread advances messages.

    This is SingleCaffe's algorithm 1: the main thread is the scheduler, which starts the workers, and waits for all.
    `main` says what the main thread is doing, and `records` what each instance is.
    """

    name = "crew"

    def __init__(self, crew: Crew, main: RankRecord, records: Sequence[RankRecord]):
        super().__init__()
        self._crew, self._main, self._records = crew, main, records
        self._forwards_left = 0  # forward passes that have not ended

    def passes(
        self,
        forwards: Sequence[Callable[[], None]],
        middle: Callable[[], object],
        backwards: Sequence[Callable[[], None]],
    ) -> None:
        """Call each instance's forward and backward pass without a barrier; `middle` once all forward passes ended.

        If one fails, `middle` may not be called.
        """
        self._forwards_left = len(forwards)
        with self._under_way([partial(self._pass, *both) for both in zip(forwards, backwards, strict=True)]):
            self.advance(lambda: not self._forwards_left or not self._left)
            if not self._forwards_left:
                middle()
            self.advance(lambda: not self._left)

    def advance(self, is_done: Callable[[], bool]) -> None:
        """Advance messages until the instances have come so far."""
        with self._main.waiting(INSTANCES):
            super().advance(is_done)

    def _pass(self, forward: Callable[[], None], backward: Callable[[], None]) -> None:
        forward()
        with self._moved:
            self._forwards_left -= 1
        self._further.set()
        backward()

    def begin(self, works: Sequence[Callable[[], None]]) -> None:
        """Have each instance's thread call its work."""
        self._stop = None
        self._crew.start(lambda instance: self._work(instance, works[instance]))

    def _work(self, instance: int, work: Callable[[], None]) -> None:
        """Call a work, after which the instance waits for the others."""
        try:
            self.call(work)
        finally:
            self._records[instance].rest()

    def between(self) -> None:
        """Wake the main thread, if there are messages that it advances."""
        if self.transfers:
            super().between()

    def end(self) -> None:
        """Wait for all, and raise the error of the instance that failed first."""
        self._crew.join()

    def computes(self) -> bool:
        """Return whether the calling thread is an instance's."""
        return self._crew.is_mine()

    def stopped(self) -> BaseException:
        """Return what ends the wait of an instance."""
        error = BrokenOffError("another instance has failed")
        error.__cause__ = self._stop
        return error

    def abandon(self, error: BaseException) -> None:
        """End all waits, and wait for the threads, since the main thread has failed."""
        self._crew.abandon(error)

    def each(self, works: Sequence[Callable[[], object]]) -> None:
        """Call all works, each by the thread that is free next, and wait for them."""
        left = deque(works)

        def take(instance: int) -> None:
            while True:
                try:
                    work = left.popleft()
                except IndexError:
                    return
                work()

        self._crew.run(take)

    def close(self) -> None:
        """Leave the threads to their team."""
