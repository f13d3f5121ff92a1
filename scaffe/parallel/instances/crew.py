"""Crew: the instances' threads. They start on call, and the scheduler waits for all (SingleCaffe, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from time import sleep

from scaffe.monitor.log import log
from scaffe.parallel.instances.binding import bind
from scaffe.parallel.instances.gradient_sums import BrokenOffError
from scaffe.parallel.instances.places import Place

Work = Callable[[int], object]


class Crew:
    """One thread for each place, bound to its cores for life.

    `start(work)` makes each thread call `work(instance)`; instances of group g of `groups` start g times `delay`
    seconds later (ParaX, section 4.4). The groups have instances of each domain. `join` waits for all. Meanwhile the
    calling thread is free, to advance messages. `failed(error)`, if given, is called at once by the thread whose work
    raises, so that others stop waiting for it. Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        places: Sequence[Place],
        failed: Callable[[BaseException], object] = lambda error: None,
        groups: int = 1,
        delay: float = 0.0,
    ):
        self.places, self.groups, self.delay = tuple(places), groups, delay
        self._failed = failed
        self._calls: list[SimpleQueue[Work | None]] = [SimpleQueue() for _ in places]
        self._ends: SimpleQueue[tuple[int, BaseException | None]] = SimpleQueue()
        self._running = 0
        self._threads = [Thread(target=self._live, args=(place,), daemon=True) for place in places]
        for place, thread in zip(places, self._threads, strict=True):
            thread.name = f"instance {place.instance}"
            thread.start()

    def start(self, work: Work) -> None:
        """Make each thread call `work(instance)`; the last work must have been joined."""
        assert not self._running, "the crew is at work"
        self._running = len(self._threads)
        for calls in self._calls:
            calls.put(work)

    @property
    def is_idle(self) -> bool:
        """Whether all threads have ended their work, so that `join` returns at once."""
        return self._ends.qsize() == self._running

    def join(self) -> None:
        """Wait for all threads' work. Raise the error of the instance that failed first, and log its number."""
        failures: list[tuple[bool, int, int, BaseException]] = []
        while self._running:
            instance, error = self._ends.get()
            self._running -= 1
            if error is not None:
                failures.append((isinstance(error, BrokenOffError), len(failures), instance, error))
        if failures:
            _, _, instance, error = min(failures, key=lambda failure: failure[:2])
            log.error("instance %d of %d failed: %s", instance, len(self.places), type(error).__name__)
            raise error

    def run(self, work: Work) -> None:
        """Call `work(instance)` in each thread, and wait for all."""
        self.start(work)
        self.join()

    def close(self) -> None:
        """End the threads, once their work has ended."""
        for calls in self._calls:
            calls.put(None)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _live(self, place: Place) -> None:
        """Bind this thread, then do the work that comes until it is None."""
        late = place.instance % self.groups
        unbound: BaseException | None = None
        try:
            bind(place.cores)
        except Exception as error:
            unbound = error
        while (work := self._calls[place.instance].get()) is not None:
            try:
                if unbound is not None:
                    raise unbound
                if late and self.delay:
                    sleep(late * self.delay)
                work(place.instance)
            except BaseException as error:
                self._failed(error)
                self._ends.put((place.instance, error))
            else:
                self._ends.put((place.instance, None))
