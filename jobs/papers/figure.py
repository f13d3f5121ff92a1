"""Figure: the base class of the papers' figures; each is in a file of this folder, named after its ID.

A figure stands for one sentence of a paper, its headline. `run.py` calls its `measure`, `model`, `judge` and `draw`.
What was measured is kept in results/ID.json, with when, on which machine and beside which other work; also what a slow
model predicts. All else is made anew from it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from verdicts import NOT_TESTABLE, Found, Judged

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Data = dict[str, Any]  # as JSON has it
STATED, DERIVED, FITTED, ASSUMED, MEASURED = "stated", "derived", "fitted", "assumed", "measured"
ORIGINS = STATED, DERIVED, FITTED, ASSUMED, MEASURED
M, S, F = "measured here", "simulated or modelled", "an input is fitted on it"  # the evidence
WORDS, NOT_TRIED = 25, "not-tried"  # words of a sentence that is quoted; key of claims.toml


class NotMeasurable(Exception):
    """Raised where the machine can't measure a figure; the text is the reason."""


@dataclass(frozen=True)
class Input:
    """A number that a model uses, its range, and where it comes from: one of ORIGINS, and the place or the reason."""

    name: str
    value: float
    unit: str
    origin: str
    where: str
    low: float | None = None
    high: float | None = None


@cache
def claims() -> Data:
    """Return the texts of claims.toml, by figure."""
    with open(Path(__file__).with_name("claims.toml"), "rb") as file:
        return tomllib.load(file)


class Figure:
    """Base class of the figures; `measured` is {} where the machine can't measure, or a model stands alone.

    Its texts are in claims.toml: `quote`, a sentence of the paper of at most WORDS words, `where` it stands, the number
    or the direction that it has (`paper`), and what differs and why.
    """

    id: str
    tag: str  # M, S or F
    inputs: Sequence[Input] = ()
    slow = False  # whether the model takes more than a second: then what it predicts is kept
    is_gate = False

    def __init__(self) -> None:
        self.instead: dict[str, float] = {}  # values of inputs while a range is tried
        texts = claims()[self.id]
        self.title, self.quote, self.where, self.paper = (texts[key] for key in ("title", "quote", "where", "paper"))
        self.differs: list[str] = texts["differs"]

    def value(self, name: str) -> float:
        """Return the value of an input."""
        if name in self.instead:
            return self.instead[name]
        return next(one.value for one in self.inputs if one.name == name)

    def spread(self, number: Callable[[], float]) -> Found:
        """Return a number, and the least and the most of it with each input in turn at the ends of its range."""
        values = [number()]
        for one in self.inputs:
            for end in (one.low, one.high):
                if end is not None:
                    self.instead = {one.name: end}
                    values.append(number())
        self.instead = {}
        return Found.of(values)

    def measure(self) -> Data:
        """Return what this machine measures, as JSON; {} for a model alone. Raise NotMeasurable where it can't."""
        return {}

    def model(self, measured: Data) -> Data:
        """Return what the model predicts at the paper's size, and at the measured one."""
        return {}

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Return the verdict, and what was found."""
        raise NotImplementedError

    def draw(self, axes: Any, measured: Data, modelled: Data) -> None:
        """Draw the paper's points and ours."""
        raise NotImplementedError


class Untested(Figure):
    """A sentence that nothing here can test, and what it would take; it has no module."""

    tag = "none"

    def __init__(self, name: str) -> None:
        self.id = name
        super().__init__()

    def judge(self, measured: Data, modelled: Data) -> Judged:
        """Return that it is not testable."""
        return Judged(NOT_TESTABLE, "-")
