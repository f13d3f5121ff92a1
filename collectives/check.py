"""Check: prove without MPI that a schedule does what it says; see `collectives.schedules.check`."""

from collectives.schedules.check import check

__all__ = ["check"]
