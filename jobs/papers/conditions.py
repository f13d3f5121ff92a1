"""Conditions: when, on which machine and beside which other work a figure is measured."""

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
STAT, IDLE = Path("/proc/stat"), slice(3, 5)  # its columns of idle time
WATCHED = 1.0  # seconds


def conditions() -> dict[str, Any]:
    """Return the date and minute, the machine, the cores that other work uses, and a core's sgemm rate.

    Call it before a measurement, while nothing of ours runs. The rate, in GFLOP/s, is what is left of a core.
    """
    date = time.strftime("%Y-%m-%d %H:%M")
    return {"date": date, "machine": machine(), "busy": round(busy(), 2), "sgemm": round(sgemm(), 1)}


def busy() -> float:
    """Return how many cores work, the mean of a second; time that a hypervisor takes counts as work."""
    before = ticks()
    time.sleep(WATCHED)
    spent = ticks() - before
    return float((os.cpu_count() or 1) * (1 - spent[IDLE].sum() / spent.sum()))


def ticks() -> np.ndarray:
    """Return the ticks that the cores have spent since the start: user, nice, system, idle, waiting for I/O, ..."""
    return np.array(STAT.read_text().split("\n", 1)[0].split()[1:9], float)


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
