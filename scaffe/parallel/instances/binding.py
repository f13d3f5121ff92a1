"""Bind threads to cores, with the BLAS calls that they make."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

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


def bind_blas() -> Callable[[], object]:
    """Limit numpy's BLAS to the calling thread, in all threads. Return a function that restores its number of threads.

    BLAS has one pool of threads for the process, on any cores. A product that they compute would lie in any domain.
    """
    from threadpoolctl import threadpool_limits

    limits = threadpool_limits(1, "blas")
    restore: Callable[[], object] = limits.restore_original_limits
    return restore
