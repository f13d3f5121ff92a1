"""Crew: the instances' threads. They start on call, and the scheduler waits for all (SingleCaffe, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Condition, Thread, current_thread
from time import sleep
from typing import TypeVar

import numpy as np

from scaffe.devices.threads import explain
from scaffe.errors import ScaffeError, add_note
from scaffe.parallel.instances.binding import bind, bind_blas
from scaffe.parallel.instances.gradient_sums import BrokenOffError
from scaffe.parallel.instances.places import Place
from scaffe.parallel.world import USER_ERRORS

T = TypeVar("T")
Work = Callable[[int], object]
SIGNAL_SECONDS = 0.2  # of a wait, after which the main thread handles a signal that came before it


class Crew:
    """One thread for each place, bound to its cores for life, as are numpy's products that it computes.

    `start(work)` makes each thread call `work(instance)`; instances of group g of `groups` start g times `delay`
    seconds later (ParaX, section 4.4). The groups have instances of each domain. `join` waits for all. Meanwhile the
    calling thread is free, to advance messages. `failed(error)`, if given, is called at once by the thread whose work
    raises, so that others stop waiting for it. A thread starts with its first work, before which it calls
    `prepare(instance)`. Use the crew as a context manager, or call `close`.
    """

    def __init__(
        self,
        places: Sequence[Place],
        failed: Callable[[BaseException], object] = lambda error: None,
        groups: int = 1,
        delay: float = 0.0,
        prepare: Callable[[int], object] = lambda instance: None,
    ):
        self._prepare = prepare
        self.places, self.groups, self.delay = tuple(places), groups, delay
        self._failed = failed
        self._calls: list[SimpleQueue[Work | None]] = [SimpleQueue() for _ in places]
        self._ends: dict[int, BaseException | None] = {}  # of the last work, by instance: its error, if any
        self._at_work = 0  # instances 0 to one below it have the last work
        self._ended = Condition()
        self._running = self._delays = self._closed = False
        self._unbind_blas = bind_blas()
        self._has_failed = False  # a thread's work, or the caller that waits for it
        self._threads = [self._thread(place) for place in places]

    def start(self, work: Work, delay: bool = True) -> None:
        """Make each thread call `work(instance)`, without the groups' `delay` if False; the last must be joined.

        Raise ScaffeError once closed, since no thread would answer, and where a thread can't be started.
        """
        self._start(work, len(self._threads), delay)

    def _start(self, work: Work, count: int, delay: bool) -> None:
        """Make the threads of the first `count` instances call `work(instance)`."""
        assert not self._running, "the crew is at work"
        if self._closed:
            raise ScaffeError("the instances' threads have ended, since the solver is closed; make another")
        for i in range(count):
            self._open(i)
        self._ends, self._running, self._has_failed = {}, True, False
        self._at_work, self._delays = count, delay
        for calls in self._calls[:count]:
            calls.put(work)

    def _thread(self, place: Place) -> Thread:
        return Thread(target=self._live, args=(place,), name=f"instance {place.instance}", daemon=True)

    def _open(self, i: int) -> None:
        """Start a thread that has had no work yet. Raise ScaffeError where the process may have no more."""
        thread = self._threads[i]
        try:
            if thread.ident is None:
                thread.start()
        except RuntimeError as error:
            self._threads[i] = self._thread(self.places[i])  # Python 3.13 starts none twice, even if it did not start
            text = explain(error)
            raise ScaffeError(f"{thread.name} of {len(self.places)}: {text}; ask for fewer instances") from None

    @property
    def is_idle(self) -> bool:
        """Whether all threads have ended their work, so that `join` returns at once."""
        return not self._running or self._all_ended()

    def join(self) -> None:
        """Wait for all threads' work. Raise the error of the instance that failed first, with a note of its number.

        An error that is raised in this thread meanwhile, such as KeyboardInterrupt, ends the others' waits too.
        """
        try:
            self._wait()
        except BaseException as error:
            self.abandon(error)
            raise
        self._running = False
        failures = [(instance, failure) for instance, failure in self._ends.items() if failure is not None]
        self._ends = {}
        if failures:
            instance, failure = min(failures, key=lambda one: isinstance(one[1], BrokenOffError))
            add_note(failure, f"instance {instance} of {len(self.places)}")
            raise failure

    def abandon(self, error: BaseException) -> None:
        """Call `failed(error)`, an error of the calling thread, and wait for all threads; theirs are not raised."""
        self._fail(error)
        self._wait()
        self._running, self._ends = False, {}

    def is_mine(self) -> bool:
        """Return whether the calling thread is an instance's."""
        return current_thread() in self._threads

    def _all_ended(self) -> bool:
        return len(self._ends) == self._at_work

    def _wait(self) -> None:
        """Wait for all threads. Python handles a signal that comes just before a wait only after it."""
        with self._ended:
            while not self._ended.wait_for(lambda: self.is_idle, SIGNAL_SECONDS):
                pass

    def run(self, work: Work) -> None:
        """Call `work(instance)` in each thread, all at once, and wait for all."""
        self.start(work, delay=False)
        self.join()

    def build(self, make: Callable[[int], T]) -> list[T]:
        """Return make(instance) of all instances, each called in the instance's thread, so that it touches its memory.

        Instance 0's comes first: it fills what the process loads once, and reports what is wrong with all, such as a
        batch with fewer samples than instances, before the other threads start.
        """
        made: dict[int, T] = {}
        wrong: list[Exception] = []  # with all of them

        def build_first(instance: int) -> None:
            try:
                made[instance] = make(instance)
            except USER_ERRORS as error:
                wrong.append(error)

        def build(instance: int) -> None:
            if instance not in made:
                made[instance] = make(instance)

        self._start(build_first, 1, delay=False)
        self.join()
        if wrong:
            raise wrong[0]
        self.run(build)
        return [made[i] for i in range(len(self.places))]

    def close(self) -> None:
        """End the threads, once their work has ended."""
        self._closed = True
        for calls in self._calls:
            calls.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._unbind_blas()

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
            self._prepare(place.instance)
        except Exception as error:
            unbound = error
        while (work := self._calls[place.instance].get()) is not None:
            try:
                if unbound is not None:
                    raise unbound
                if late and self.delay and self._delays:
                    sleep(late * self.delay)
                with np.errstate(all="ignore"):  # which each thread has of its own
                    work(place.instance)
            except BaseException as error:
                self._fail(error)
                self._end(place.instance, error)
            else:
                self._end(place.instance, None)

    def check(self) -> None:
        """Raise BrokenOffError where another instance's work has failed, or the caller that waits for all."""
        if self._has_failed:
            raise BrokenOffError

    def _fail(self, error: BaseException) -> None:
        self._has_failed = True
        self._failed(error)

    def _end(self, instance: int, error: BaseException | None) -> None:
        with self._ended:
            self._ends[instance] = error
            if self._all_ended():
                self._ended.notify()
