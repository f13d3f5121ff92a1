"""Whether the MPI library takes device pointers. The library is asked; trying would crash one that does not."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from collectives.errors import ArgumentError

VARIABLE = "COLLECTIVES_CUDA_AWARE"
GPU_CUDA = 0  # MPICH's MPIX_GPU_SUPPORT_CUDA


def takes_device_pointers(environment: Mapping[str, str] = os.environ, library: Any = None) -> bool:
    """Return whether MPI takes CUDA pointers; see `support`."""
    return support(environment, library)[0]


def support(environment: Mapping[str, str] = os.environ, library: Any = None) -> tuple[bool, str]:
    """Return whether MPI takes CUDA pointers, and the source of the answer.

    The source is COLLECTIVES_CUDA_AWARE, 0 or 1, or else the library: Open MPI has MPIX_Query_cuda_support, MPICH
    MPIX_GPU_query_support, and a library with neither takes none. `library` replaces the loaded libraries. MPI must be
    initialized. Raise ArgumentError for another value of the variable.
    """
    if value := environment.get(VARIABLE, ""):
        if value not in ("0", "1"):
            raise ArgumentError(f"{VARIABLE} is 0 or 1, got '{value}'")
        return value == "1", f"{VARIABLE}={value}"
    libraries = _loaded() if library is None else {"the library": library}
    for path, found in libraries.items():
        for name, ask in QUERIES.items():
            if (function := getattr(found, name, None)) is not None:
                return ask(function), f"{name} of {path}"
    return False, f"neither {' nor '.join(QUERIES)} is in {' '.join(libraries)}"


def _ask_mpich(function: Any) -> bool:
    """Call MPICH's query."""
    answer = ctypes.c_int(0)
    return function(ctypes.c_int(GPU_CUDA), ctypes.byref(answer)) == 0 and bool(answer.value)


QUERIES: dict[str, Callable[[Any], bool]] = {
    "MPIX_Query_cuda_support": lambda function: bool(function()),
    "MPIX_GPU_query_support": _ask_mpich,
}


def _loaded() -> dict[str, Any]:
    """Return the loaded MPI libraries by path; mpi4py's extension module where none has a usual name."""
    from mpi4py import MPI

    maps = Path("/proc/self/maps").read_text()
    paths = sorted(set(re.findall(r"(/\S*/libmpi(?:ch|_cray)?\.so\S*)", maps))) or [MPI.__file__]
    return {path: ctypes.CDLL(path) for path in paths}
