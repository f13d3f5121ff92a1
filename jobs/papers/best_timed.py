"""Best, timed: the inputs of beyond_1.py, and the gain of one way over another beside the model's error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from figure import ASSUMED, DERIVED, STATED, Data, Input

NDR = "ndr"
TESTED = "docs/simulate.md: estimates over driven ranks"
INPUTS = (
    Input("error, trees", 0.02, "of an iteration", DERIVED, f"{TESTED}, nothing hidden"),
    Input("error, trees, slow additions", 0.3, "of an iteration", DERIVED, f"{TESTED}: additions as slow as messages"),
    Input("error, allreduce", 0.1, "of an iteration", DERIVED, f"{TESTED}, nothing hidden"),
    Input("error, overlap", 0.2, "of an iteration", DERIVED, f"{TESTED}, with overlap"),
    Input("error, instances", 0.21, "of a rate", DERIVED, "docs/simulate-instances.md: the most of two threads"),
    Input("socket: memory", 96e9, "bytes of a rank", STATED, "ParaX, section 5: 192 GB for two sockets"),
    Input("K-80: memory", 12e9, "bytes of a rank", ASSUMED, "its data sheet: 24 GB for two devices"),
    Input("Tianhe-2: memory", 64e9, "bytes of a rank", STATED, "SingleCaffe, section V.A"),
    Input("SW26010: memory", 32e9, "bytes of a rank", STATED, "swCaffe, section II: 8 GB for each of 4 core groups"),
    Input("H100: memory", 80e9, "bytes of a rank", ASSUMED, "its data sheet"),
)


def value(name: str) -> float:
    """Return the value of an input."""
    return next(one.value for one in INPUTS if one.name == name)


@dataclass(frozen=True)
class Timed:
    """The seconds of an iteration, how it is run, and the model's error, a part of the seconds."""

    seconds: float
    how: str
    error: float


def bounds(slow: Timed, fast: Timed) -> tuple[float, float, float]:
    """Return how many times as long `slow` takes, and the least and the most that the errors allow."""
    found = slow.seconds / fast.seconds
    return found, found * (1 - slow.error) / (1 + fast.error), found * (1 + slow.error) / (1 - fast.error)


def is_beyond(found: Sequence[float]) -> bool:
    """Return whether a gain is beyond the model's error: 1 is not between the least and the most."""
    return found[1] > 1


def row(title: str, machine: str, ranks: int, own: Timed | None, ours: Timed, alone: float, devices: int) -> Data:
    """Return the row of a table: milliseconds of a paper's own way, if it has one, and of the best.

    `alone`: seconds of a rank's computing. `devices`: those of the machine.
    """
    found = {"system": title, "machine": machine, "ranks": ranks, "best": 1e3 * ours.seconds, "how": ours.how}
    found |= {"alone": 1e3 * alone, "exceeds": ranks > devices}
    if own is None:
        return found | {"own": None, "gain": None, "beyond": False, "words": "none between machines"}
    gain = bounds(own, ours)
    return found | {"own": 1e3 * own.seconds, "gain": gain, "beyond": is_beyond(gain), "words": own.how}
