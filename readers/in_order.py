"""in_order: maps a function over items in several threads, and yields the results in order."""

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

AHEAD = 3  # groups for each thread that are submitted before the first result is awaited


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int = 0, group: int = 1
) -> Iterator[Result]:
    """Yield `work(item)` for each item, in order, computed ahead by `threads` threads (0: one for each core).

    A task has `group` items; larger groups suit short work. At most AHEAD groups for each thread, and one, are pending.
    An exception of `work` is raised here, after the results of the groups before its own. Raises ReaderError for
    `threads` out of range.
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
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _groups(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    items = iter(items)
    while some := list(islice(items, size)):
        yield some
