"""Open MPI: a setting that it needs before MPI starts."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

WINDOWS, NOT_UCX = "OMPI_MCA_osc", "^ucx"


def quiet_windows(environment: MutableMapping[str, str] = os.environ) -> None:
    """Have Open MPI, where mpirun has put all ranks on one node, not try UCX for windows.

    There it does not work: each rank prints an error for each window. Between nodes, where the user has set something
    and where MPI has started already, do nothing.
    """
    ranks, here = (environment.get(f"OMPI_COMM_WORLD_{name}SIZE") for name in ("", "LOCAL_"))
    if ranks is not None and ranks == here and "mpi4py.MPI" not in sys.modules:
        environment.setdefault(WINDOWS, NOT_UCX)
