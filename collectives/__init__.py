"""Collectives over MPI, usable without the rest of scaffe."""

from __future__ import annotations

from typing import Any

from collectives.agreement import agree
from collectives.errors import (
    AlgorithmError,
    ArgumentError,
    CollectiveError,
    DeviceFault,
    DisagreementError,
    ScheduleError,
)
from collectives.group import Group
from collectives.schedules.algorithms import check_algorithm, make_schedule
from collectives.schedules.schedule import Schedule

__all__ = [
    "AlgorithmError",
    "ArgumentError",
    "CollectiveError",
    "Communicator",
    "DeviceFault",
    "DisagreementError",
    "Group",
    "Schedule",
    "ScheduleError",
    "Staged",
    "agree",
    "check_algorithm",
    "make_schedule",
]


def __getattr__(name: str) -> Any:
    """Load what needs MPI only when it is asked for."""
    if name == "Communicator":
        from collectives.communicator import Communicator

        return Communicator
    if name == "Staged":
        from collectives.staged import Staged

        return Staged
    raise AttributeError(f"module 'collectives' has no attribute '{name}'")
