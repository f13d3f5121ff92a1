"""Conditions: when, on which machine and under which load a figure is measured."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

SIDE, TIMES = 512, 9  # rows and columns of the products that are timed; how many


def conditions() -> dict[str, Any]:
    """Return the date and minute, the machine, the load average of the last minute, and a core's sgemm rate.

    Call it before a measurement: the load is then that of other work, or of the measurement before. The rate, in
    GFLOP/s, is what is left of a core.
    """
    date, load = time.strftime("%Y-%m-%d %H:%M"), round(os.getloadavg()[0], 1)
    return {"date": date, "machine": machine(), "load": load, "sgemm": round(sgemm(), 1)}


def machine() -> str:
    """Return this machine in words: the processor's name and the number of its cores."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(": ")[2] for line in info if line.startswith("model name")]
    return f"{len(names)} cores, {names[0] if names else platform.machine()}"


def sgemm() -> float:
    """Return the GFLOP/s of a product of float32 matrices, the median; of one core, as papers.sh sets threads."""
    a, b = np.ones((SIDE, SIDE), np.float32), np.ones((SIDE, SIDE), np.float32)
    return 2e-9 * SIDE**3 / median(seconds_of(lambda: a @ b, TIMES))


def seconds_of(call: Callable[[], object], times: int) -> list[float]:
    """Return the seconds of each of some calls."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds
