"""Bind threads to cores, with the BLAS calls that they make."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from threading import Lock

from scaffe.errors import LaunchError
from scaffe.parallel.instances.topology import ranges


def bind(cores: Iterable[int]) -> None:
    """Bind the calling thread to cores; threads that it starts from now on, such as an OpenMP team's, inherit them.

    Other threads keep theirs. Memory that the thread is the first to write then lies in the cores' domain. Raise
    LaunchError where the kernel refuses.
    """
    wanted = sorted(cores)
    try:
        os.sched_setaffinity(0, wanted)  # 0: the calling thread
    except (OSError, ValueError) as error:
        raise LaunchError(f"a thread can't be bound to cores {ranges(wanted)}: {error}") from None


class _OneBlasThread:
    """The limit of numpy's BLAS to the calling thread, which several crews of a process can need."""

    def __init__(self) -> None:
        self._needed, self._lock = 0, Lock()
        self._restore: Callable[[], object] = lambda: None

    def take(self) -> None:
        """Set the limit."""
        from threadpoolctl import threadpool_limits

        with self._lock:
            limits = threadpool_limits(1, "blas")
            if not self._needed:
                self._restore = limits.restore_original_limits
            self._needed += 1

    def give_up(self) -> None:
        """Restore the number of threads, unless another crew needs the limit."""
        with self._lock:
            self._needed -= 1
            if not self._needed:
                self._restore()


_one_thread = _OneBlasThread()


def bind_blas() -> Callable[[], object]:
    """Limit numpy's BLAS to the calling thread, in all threads. Return a function that ends the limit, once.

    BLAS has one pool of threads for the process, on any cores. A product that they compute would lie in any domain. The
    number of threads is restored once all limits have ended.
    """
    _one_thread.take()
    limit = ExitStack()
    limit.callback(_one_thread.give_up)
    return limit.close
