"""The MPI library's version and capabilities, found without communication."""

from __future__ import annotations

from collections.abc import Iterator

from collectives.execution.device import aware

LEVELS = ("single", "funneled", "serialized", "multiple")  # of threads that may call MPI


def mpi_lines() -> Iterator[str]:
    """Iterate over lines about the MPI library that this process has loaded."""
    from mpi4py import MPI

    version = MPI.Get_library_version().rstrip("\0").strip().splitlines()[0]
    yield f"MPI: {version}"
    yield f"MPI standard: {'.'.join(map(str, MPI.Get_version()))}; threads: {LEVELS[MPI.Query_thread()]}"
    takes, who = aware.support()
    yield f"GPU-aware MPI: {'yes' if takes else 'no'} ({who})"
