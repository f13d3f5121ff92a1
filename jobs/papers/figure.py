"""Figure: the base class of the papers' figures; each is in a file of this folder, named after its ID.

A figure has inputs, and the methods `measure`, `model`, `check` and `draw`. `run.py` calls them in this order, and
writes the result. Its keys:

- rank, id, title, source: the figure's place by conviction, and where it stands in the paper,
- paper, measured, modelled: the numbers in words; inputs, unexplained: lists for the pages; table: lines, if any,
- checks: what, found, low, high, verdict, by, why,
- verdict: the worst of the checks,
- kept: what was measured, from which the rest can be made again; when, on which machine and beside which other work,
- model: what the model predicts, of slow figures alone: the rest can be made again without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from scaffe.papers import FAILS, HOLDS, NO_EVIDENCE, NOT_MEASURABLE, NOT_REPRODUCED, OWN, REPRODUCED

Data = dict[str, Any]  # as JSON has it
STATED, DERIVED, FITTED, ASSUMED, MEASURED = "stated", "derived", "fitted", "assumed", "measured"
ORIGINS = STATED, DERIVED, FITTED, ASSUMED, MEASURED
MODEL_ALONE = "a model alone"
PAPER, OURS, MODEL, OTHER = "black", "#3F72AF", "#E07A5F", "#81B29A"  # colours


class NotMeasurable(Exception):
    """Raised where the machine can't measure a figure; the text is the reason."""


@dataclass(frozen=True)
class Input:
    """A number that a model uses, and where it comes from: one of ORIGINS, and the place or the reason."""

    name: str
    value: float
    unit: str
    origin: str
    where: str


@dataclass(frozen=True)
class Check:
    """A claim: `found` must be from `low` to `high`, where None is no bound. None found: `why` it was not measured.

    `fitted`: an input was fitted on what is checked, or leaves it no choice. Such a check is no evidence where it
    holds; one that is missed even so counts.
    """

    what: str
    found: float | None
    low: float | None = None
    high: float | None = None
    why: str = ""
    fitted: bool = False

    @property
    def by(self) -> float:
        """Return how far outside the bounds the value is; 0 inside."""
        if self.found is None:
            return 0.0
        below = 0.0 if self.low is None else self.low - self.found
        above = 0.0 if self.high is None else self.found - self.high
        return max(below, above, 0.0)

    @property
    def verdict(self) -> str:
        """Return one of VERDICTS."""
        if self.found is None:
            return NOT_MEASURABLE
        if self.by or not isfinite(self.found):
            return NOT_REPRODUCED
        return NO_EVIDENCE if self.fitted else REPRODUCED

    def result(self) -> Data:
        """Return the check as a result has it."""
        return asdict(self) | {"verdict": self.verdict, "by": self.by}


def within(what: str, found: float, value: float, share: float, fitted: bool = False) -> Check:
    """Return the check that `found` is `value` within a share of it."""
    return Check(what, found, value * (1 - share), value * (1 + share), fitted=fitted)


def holds(what: str, truth: bool) -> Check:
    """Return the check of a statement that is true (1) or false (0)."""
    return Check(what, float(truth), 1, 1)


class Figure:
    """Base class of the figures; `measured` is {} where the machine can't measure, or a model stands alone."""

    id: str
    rank: int  # 1 is the most telling; 0 is the gate
    title: str
    source: str  # paper, figures, sections
    paper: str  # the paper's numbers
    slow = False  # whether the model takes more than a second: then the result has what it predicts
    inputs: Sequence[Input] = ()
    unexplained: Sequence[str] = ()  # what the paper leaves open
    is_of_paper = True  # else it reproduces nothing: its checks say whether our own models agree

    def value(self, name: str) -> float:
        """Return the value of an input."""
        return next(one.value for one in self.inputs if one.name == name)

    def given(self, measured: Data) -> Sequence[Input]:
        """Return the inputs, with those that are fitted by what was measured."""
        return self.inputs

    def measure(self) -> Data:
        """Return what this machine measures, as JSON; {} for a model alone. Raise NotMeasurable where it can't."""
        return {}

    def model(self, measured: Data) -> Data:
        """Return what the model predicts at the paper's size, and at the measured one."""
        return {}

    def check(self, measured: Data, modelled: Data) -> Iterable[Check]:
        """Return the checks of the model, and of the measurement unless it is {}."""
        raise NotImplementedError

    def words(self, measured: Data, modelled: Data) -> tuple[str, str]:
        """Return the measured and the modelled numbers in words."""
        raise NotImplementedError

    def table(self, measured: Data, modelled: Data) -> Iterable[str]:
        """Return the lines of tables for the figure's page, in Markdown; none by default."""
        return ()

    def draw(self, figure: Any, measured: Data, modelled: Data) -> None:
        """Draw into a matplotlib figure, in the paper's axes."""
        raise NotImplementedError


def result(figure: Figure, kept: Data) -> Data:
    """Return a figure's result; `kept` has what was measured, or the reason `why` not."""
    measured = kept.get("measured", {})
    modelled = figure.model(measured)
    checks = [check.result() for check in figure.check(measured, modelled)]
    if "why" in kept:
        checks.append(Check("measurement", None, why=kept["why"]).result())
    if not figure.is_of_paper:
        checks = [check | {"verdict": OWN.get(check["verdict"], check["verdict"])} for check in checks]
    words, table = figure.words(measured, modelled), list(figure.table(measured, modelled))
    optional = {"table": table, "model": modelled if figure.slow else None}
    return {
        "rank": figure.rank,
        "id": figure.id,
        "title": figure.title,
        "source": figure.source,
        "paper": figure.paper,
        "measured": words[0] if measured else NOT_MEASURABLE if "why" in kept else MODEL_ALONE,
        "modelled": words[1],
        "inputs": [asdict(one) for one in figure.given(measured)],
        "unexplained": list(figure.unexplained),
        "checks": checks,
        "verdict": worst([check["verdict"] for check in checks]),
        "kept": kept,
    } | {key: found for key, found in optional.items() if found}


def worst(verdicts: Sequence[str]) -> str:
    """Return the verdict of a figure whose checks have these."""
    order = NOT_REPRODUCED, FAILS, NOT_MEASURABLE, REPRODUCED, HOLDS, NO_EVIDENCE
    return next(one for one in order if one in verdicts)
