"""Collective operations over MPI, usable without the rest of scaffe.

`Communicator` has the collectives, `Staged` runs one for each of several arrays at the same time.
`make_schedule` returns the steps of an algorithm as data; `collectives.check.check` proves them right without MPI.
"""

from __future__ import annotations

import importlib
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
    WaitTimeout,
)
from collectives.group import Group
from collectives.schedules.algorithms import check_algorithm, make_schedule
from collectives.schedules.schedule import Schedule
from collectives.verbs import VERBS

__all__ = [
    "AlgorithmError",
    "ArgumentError",
    "CollectiveError",
    "Communicator",
    "DeviceFault",
    "DisagreementError",
    "Group",
    "RankLostError",
    "Request",
    "Schedule",
    "ScheduleError",
    "Staged",
    "VERBS",
    "WaitTimeout",
    "agree",
    "check_algorithm",
    "make_schedule",
    "waitall",
    "waitany",
]

LATER = {
    "Communicator": "collectives.communicator",
    "Staged": "collectives.staged",
    **dict.fromkeys(("Request", "waitall", "waitany"), "collectives.request"),
}

open_mpi.quiet_windows()


def __getattr__(name: str) -> Any:
    """Import what needs MPI on first use: schedules do not."""
    if name in LATER:
        return getattr(importlib.import_module(LATER[name]), name)
    raise AttributeError(f"module 'collectives' has no attribute '{name}'")
