"""Tuning: the tables that "auto" follows, read and written; how they are measured, and what the model says instead."""

from __future__ import annotations

from collectives.schedules.algorithms import Choice
from collectives.tuning.table import FABRIC, TCP, Row, Shape, Table, check_writable, load, network, shipped

__all__ = ["FABRIC", "TCP", "Choice", "Row", "Shape", "Table", "check_writable", "load", "network", "shipped"]
