"""Collectives over MPI, usable without the rest of scaffe."""

from collectives.agreement import agree
from collectives.errors import CollectiveError, DisagreementError

__all__ = ["CollectiveError", "DisagreementError", "agree"]
