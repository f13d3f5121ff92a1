"""Verdicts: what a figure's number says of the paper's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

REPRODUCED, SHAPE, EXCEEDED, DIFFERS = "reproduced", "reproduced in shape", "exceeded", "differs"
UNCLEAR, INCONCLUSIVE, NOT_TESTABLE = "paper unclear", "inconclusive", "not testable here"
VERDICTS = REPRODUCED, EXCEEDED, SHAPE, DIFFERS, UNCLEAR, INCONCLUSIVE, NOT_TESTABLE


@dataclass(frozen=True)
class Found:
    """A number of ours, with the least and the most that the inputs' ranges give."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Found:
        """Return the first of some values, with the least and the greatest of all."""
        each = list(values)
        return cls(each[0], min(each), max(each))

    def words(self, unit: str = "", digits: int = 3) -> str:
        """Return the number with its range."""
        value, low, high = (f"{one:.{digits}g}" for one in (self.value, self.low, self.high))
        return f"{value}{unit}" if low == high else f"{value}{unit} ({low} to {high})"


@dataclass(frozen=True)
class Judged:
    """One of VERDICTS, and what was found, in words."""

    verdict: str
    ours: str


def compared(found: float, paper: float, error: float, floor: float = 1.0) -> str:
    """Return the verdict on a gain: `error` is a share of the paper's, `floor` what no gain has."""
    if abs(found / paper - 1) <= error:
        return REPRODUCED
    if found > paper:
        return EXCEEDED
    return SHAPE if found > floor else DIFFERS


def judged(found: Found, paper: float, error: float, floor: float = 1.0) -> str:
    """Return the verdict on a gain with a range: a verdict that is another one within the range is inconclusive."""
    verdicts = {compared(one, paper, error, floor) for one in (found.value, found.low, found.high)}
    return verdicts.pop() if len(verdicts) == 1 else INCONCLUSIVE
