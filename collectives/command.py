"""Commands: what every `python -m collectives.NAME` does around its `main`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

NO_READER = 141  # the exit code that a shell reports for a program that SIGPIPE ended


def run(main: Callable[[], int]) -> int:
    """Run `main` and return its exit code, or NO_READER where the reader of stdout has closed it.

    With several ranks it aborts the job in that case, since the other ranks wait for this one.
    """
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at exit
        mpi = sys.modules.get("mpi4py.MPI")
        if mpi is not None and mpi.COMM_WORLD.size > 1:
            mpi.COMM_WORLD.Abort(NO_READER)
        return NO_READER
