"""What the MPI library is and can, asked without a message."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

LEVELS = ("single", "funneled", "serialized", "multiple")  # of threads that may call MPI
QUERY = "MPIX_Query_cuda_support"


def mpi_lines() -> Iterator[str]:
    """Iterate over lines about the library that this process has opened."""
    from mpi4py import MPI

    version = MPI.Get_library_version().rstrip("\0").strip().splitlines()[0]
    yield f"MPI: {version}"
    yield f"MPI standard: {'.'.join(map(str, MPI.Get_version()))}; threads: {LEVELS[MPI.Query_thread()]}"
    yield f"MPI takes GPU memory: {cuda_support()}"


def cuda_support() -> str:
    """Return "yes" or "no" and how that was found out: by asking the loaded library, never by trying.

    Open MPI and its descendants, and MPICH from 4.0 on, have a function that tells.
    """
    for path in _loaded():
        function = getattr(ctypes.CDLL(path), QUERY, None)
        if function is not None:
            return f"{'yes' if function() else 'no'} ({QUERY} of {path})"
    return f"no ({QUERY} is in none of the loaded MPI libraries: {' '.join(_loaded()) or 'none found'})"


def _loaded() -> list[str]:
    """Return the paths of the MPI libraries that are loaded."""
    maps = Path("/proc/self/maps").read_text()
    return sorted(set(re.findall(r"(/\S*/libmpi(?:ch|_cray)?\.so\S*)", maps)))
