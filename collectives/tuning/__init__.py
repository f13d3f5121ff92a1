"""Tuning: the tables that "auto" follows, the choice between candidates, and the table of the model."""

from __future__ import annotations

from collectives.schedules.algorithms import Choice
from collectives.tuning.table import (
    FABRIC,
    TCP,
    Row,
    Shape,
    Table,
    check_writable,
    instead,
    load,
    network,
    present,
    shipped,
)

__all__ = [
    "FABRIC",
    "TCP",
    "Choice",
    "Row",
    "Shape",
    "Table",
    "check_writable",
    "instead",
    "load",
    "network",
    "present",
    "shipped",
]
