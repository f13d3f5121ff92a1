"""Check: prove without MPI that a schedule does what it says; see `collectives.simulation.check`."""

from collectives.simulation.check import check

__all__ = ["check"]
