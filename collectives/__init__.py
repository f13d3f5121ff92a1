"""Collective operations over MPI, usable without the rest of scaffe.

`Communicator` has the collectives, `Staged` runs one for each of several arrays at the same time.
`make_schedule` returns the steps of an algorithm as data; `collectives.check.check` proves them right without MPI.
"""

from __future__ import annotations

from typing import Any

from collectives import open_mpi
from collectives.agreement import agree
from collectives.errors import (
    AlgorithmError,
    ArgumentError,
    CollectiveError,
    DeviceFault,
    DisagreementError,
    RankLostError,
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
    "RankLostError",
    "Schedule",
    "ScheduleError",
    "Staged",
    "agree",
    "check_algorithm",
    "make_schedule",
]


open_mpi.quiet_windows()


def __getattr__(name: str) -> Any:
    """Import Communicator or Staged on first use: they need MPI, schedules do not."""
    if name == "Communicator":
        from collectives.communicator import Communicator

        return Communicator
    if name == "Staged":
        from collectives.staged import Staged

        return Staged
    raise AttributeError(f"module 'collectives' has no attribute '{name}'")
