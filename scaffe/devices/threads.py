"""Threads: how many a rank computes with, as callers and OMP_NUM_THREADS say."""

from __future__ import annotations

import os
from collections.abc import Mapping

from readers import most_threads
from scaffe.errors import LaunchError


def check_threads(threads: int, least: int = 0, name: str = "threads") -> int:
    """Return `threads`. Raise LaunchError for fewer than `least`, or more than make sense on this machine."""
    if not least <= threads <= most_threads():
        raise LaunchError(f"{name} must be {least} to {most_threads()} on this machine, got {threads}")
    return threads


def given_threads(environment: Mapping[str, str] = os.environ) -> int:
    """Return what OMP_NUM_THREADS says, of a list its first number, 0 if nothing. Raise LaunchError for nonsense."""
    name = "OMP_NUM_THREADS"
    text = environment.get(name, "").split(",")[0].strip()
    if not text:
        return 0
    if not text.isdecimal():
        raise LaunchError(f"{name} must be a number of threads, got '{text}'")
    return check_threads(int(text), 1, name)
