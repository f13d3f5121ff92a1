"""The number of threads that a rank computes with, from arguments and OMP_NUM_THREADS; and the lack of any more."""

from __future__ import annotations

import os
from collections.abc import Mapping

from readers import most_threads
from scaffe.errors import LaunchError

NO_THREAD = "can't start new thread"  # Python's text, without a class of its own


def explain(error: BaseException) -> str:
    """Return what an error says of a thread that could not be started, and what to do; "" for other errors."""
    limits = "its limit of processes (ulimit -u) or of memory (ulimit -v) is reached"
    is_that = type(error) is RuntimeError and NO_THREAD in str(error)
    return f"this process can start no more threads: {limits}" if is_that else ""


def check_threads(threads: int, least: int = 0, name: str = "threads") -> int:
    """Return `threads`. Raise LaunchError for less than `least`, or more than this machine allows."""
    if not least <= threads <= most_threads():
        raise LaunchError(f"{name} must be {least} to {most_threads()} on this machine, got {threads}")
    return threads


def given_threads(environment: Mapping[str, str] = os.environ) -> int:
    """Return the first number of OMP_NUM_THREADS, 0 if it is not set. Raise LaunchError if it is no number."""
    name = "OMP_NUM_THREADS"
    text = environment.get(name, "").split(",")[0].strip()
    if not text:
        return 0
    if not text.isdecimal():
        raise LaunchError(f"{name} must be a number of threads, got '{text}'")
    return check_threads(int(text), 1, name)


def limit_blas(threads: int) -> None:
    """Set the number of threads of numpy's BLAS, for all threads that call it."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)
