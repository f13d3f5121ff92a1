"""Ending: what a rank does that fails, so that no other waits for it.

An exception that nobody catches ends the job. With mpirun --with-ft ulfm it ends this process alone. A rank that ends
before its process groups are destroyed says so in their stores, and the others' waits end with an error.
"""

from __future__ import annotations

import atexit
import os
import sys
from functools import cache
from typing import Any
from weakref import WeakSet

from mpi4py import MPI

from collectives.abort import abort, write
from collectives.loss import ignoring_loss

TOLERANT = "OMPI_MCA_mpi_ft_enable"  # Open MPI's mpirun --with-ft ulfm sets it
GROUPS: WeakSet[Any] = WeakSet()  # process groups that were not destroyed


def is_tolerant() -> bool:
    """Return whether the ranks that are left can go on when one is lost."""
    return os.environ.get(TOLERANT) == "1" and "Shrink" in dir(MPI.Intracomm)


@cache
def watch() -> None:
    """Do what this module says, in this process."""
    shown = sys.excepthook

    def fail(kind: Any, error: Any, trace: Any) -> None:
        shown(kind, error, trace)
        if GROUPS and issubclass(kind, Exception):  # PyTorch's own hook, around this one, has yet to write the error
            atexit.register(end, f"rank {MPI.COMM_WORLD.rank}: {kind.__name__} ends the job\n")

    sys.excepthook = fail
    atexit.register(leave)


def end(text: str) -> None:
    """End the job, or where it can go on without this process, the process."""
    sys.stdout.flush()
    if MPI.Is_finalized() or MPI.COMM_WORLD.size == 1:
        return
    if is_tolerant():
        write(text)
        os._exit(1)
    abort(MPI.COMM_WORLD, 1, text)


def leave() -> None:
    """Say that this process makes no more calls; end the job where a call of MPI would keep it for ever."""
    for group in list(GROUPS):
        group.leave()
    if any(group.is_stuck for group in GROUPS):
        end(f"rank {MPI.COMM_WORLD.rank}: ends while a collective of PyTorch is under way, so the job ends\n")


def leave_for_good() -> None:
    """End this process with exit code 0 as soon as all that are left have come: MPI can't always end without some."""
    with ignoring_loss():
        MPI.COMM_WORLD.Shrink().Barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
