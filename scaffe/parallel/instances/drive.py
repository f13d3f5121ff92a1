"""CrewDrive: a drive by the instances' threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from scaffe.parallel.drive import Threads
from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.gradient_sums import BrokenOffError


class CrewDrive(Threads):
    """The instances' threads compute while the main thread advances messages.

    This is SingleCaffe's algorithm 1: the main thread is the scheduler, which starts the workers, and waits for all.
    """

    name = "crew"

    def __init__(self, crew: Crew):
        super().__init__()
        self._crew = crew

    def begin(self, works: Sequence[Callable[[], None]]) -> None:
        """Have each instance's thread call its work."""
        self._stop = None
        self._crew.start(lambda instance: self.call(works[instance]))

    def _advance(self) -> None:
        """Advance messages until all works have ended; on a single rank, which has none, `end` waits for them."""
        if self.transfers:
            super()._advance()

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
