"""Does the MPI library take device pointers? It is asked, never tried: a library that doesn't would crash."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Any

from collectives.errors import ArgumentError

VARIABLE = "COLLECTIVES_CUDA_AWARE"
GPU_CUDA = 0  # MPICH's MPIX_GPU_SUPPORT_CUDA


def takes_device_pointers(environment: Mapping[str, str] = os.environ, library: Any = None) -> bool:
    """Say whether MPI takes CUDA pointers: COLLECTIVES_CUDA_AWARE, 0 or 1, or else what the library answers.

    Open MPI has MPIX_Query_cuda_support, MPICH MPIX_GPU_query_support; one that has neither does not. `library` is
    the loaded MPI library, if it is not to be looked for. MPI must be initialized.
    Raise ArgumentError for another value.
    """
    if told := environment.get(VARIABLE, ""):
        if told not in ("0", "1"):
            raise ArgumentError(f"{VARIABLE} is 0 or 1, got '{told}'")
        return told == "1"
    library = _loaded() if library is None else library
    if (ask := getattr(library, "MPIX_Query_cuda_support", None)) is not None:
        return bool(ask())
    if (ask := getattr(library, "MPIX_GPU_query_support", None)) is not None:
        answer = ctypes.c_int(0)
        return ask(ctypes.c_int(GPU_CUDA), ctypes.byref(answer)) == 0 and bool(answer.value)
    return False


def _loaded() -> Any:
    """Return the MPI library that mpi4py has loaded."""
    from mpi4py import MPI

    return ctypes.CDLL(MPI.__file__)  # a symbol is looked for in what an extension is linked with, too
