"""Collectives over MPI, usable without the rest of scaffe."""

from collectives.agreement import agree
from collectives.algorithms import make_schedule
from collectives.errors import AlgorithmError, CollectiveError, DisagreementError, ScheduleError
from collectives.group import Group
from collectives.schedule import Schedule

__all__ = [
    "AlgorithmError",
    "CollectiveError",
    "DisagreementError",
    "Group",
    "Schedule",
    "ScheduleError",
    "agree",
    "make_schedule",
]
