"""Work on many things in several threads, its results in the things' order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from readers.threads import check_threads

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 3  # groups for each thread that are begun or done before the first of them is asked for


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int = 0, group: int = 1
) -> Iterator[Result]:
    """Yield `work(item)` of each item, in their order, done ahead by `threads` threads (0: one for each core).

    Threads take `group` items at a time, which pays where an item's work is short. Few results are held at a time. An
    exception of `work` is raised here in its item's place, after the results of the groups before it. Raises
    ReaderError for a number of threads that makes no sense.
    """

    def work_on(some: list[Item]) -> list[Result]:
        return [work(item) for item in some]

    threads = check_threads("threads", threads) or cores()
    waiting: deque[Future[list[Result]]] = deque()
    pool = ThreadPoolExecutor(threads, "in_order")
    try:
        for some in _groups(items, group):
            waiting.append(pool.submit(work_on, some))
            if len(waiting) > AHEAD * threads:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def _groups(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    items = iter(items)
    while some := list(islice(items, size)):
        yield some
