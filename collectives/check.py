"""`collectives.check.check` proves without MPI that a schedule is right; see `collectives.simulation.check`."""

from collectives.simulation.check import check

__all__ = ["check"]
