"""The papers' figures as reproduced here: a JSON file for each, which `jobs/papers.sh` writes.

The files are package data, so that an installed package has the table too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
REPRODUCED, NOT_REPRODUCED, NOT_MEASURABLE = "reproduced", "not reproduced", "not measurable here"
NO_EVIDENCE = "fitted, no evidence"  # of a check that holds because an input was fitted on what it checks
HOLDS, FAILS = "model holds", "model fails"  # of a figure that no paper has: whether our own models agree
OWN = {REPRODUCED: HOLDS, NOT_REPRODUCED: FAILS}
VERDICTS = REPRODUCED, NOT_REPRODUCED, NOT_MEASURABLE, NO_EVIDENCE, HOLDS, FAILS
MISSED = NOT_REPRODUCED, FAILS
WHY = "why"
COLUMNS = {"figure": 13, "paper": 44, "measured here": 44, "modelled": 44, "verdict": 19}  # characters; then WHY
Result = dict[str, Any]


def results(folder: Path = FOLDER) -> list[Result]:
    """Return the results, most telling figure first: see `jobs/papers/figure.py` for the keys."""
    found: list[Result] = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    return sorted(found, key=lambda result: (result["rank"], result["id"]))


def place(name: str) -> tuple[str, int, str]:
    """Return a figure's place in the order of papers, then of numbers."""
    paper, _, number = name.rpartition("-")
    return paper, len(number), number


def table(found: Sequence[Result]) -> Iterator[str]:
    """Yield the table: a line for each figure, with long texts cut, and the counts of verdicts."""
    head = {name: name for name in (*COLUMNS, WHY)}
    for cells in (head, *(_cells(one) for one in found)):
        texts = [f"{cut(cells[name], width):{width}}" for name, width in COLUMNS.items()]
        yield "  ".join([*texts, cells[WHY]]).rstrip()
    yield counted(found)


def cut(text: str, width: int) -> str:
    """Return a text of at most `width` characters: whole words, and dots where some are left out."""
    if len(text) <= width:
        return text
    return text[: width - 3].rpartition(" ")[0].rstrip(" ,;:") + "..."


def why(one: Result) -> str:
    """Return the check that keeps a figure from being reproduced, with the number of others; "" for none."""
    missed = [check for check in one["checks"] if check["verdict"] in MISSED]
    missed += [check for check in one["checks"] if check["verdict"] == NOT_MEASURABLE]
    if not missed:
        return ""
    more = f"; {len(missed) - 1} more" if len(missed) > 1 else ""
    return described(missed[0]).rpartition(": ")[0] + more if missed[0]["found"] is not None else missed[0]["why"]


def _cells(one: Result) -> dict[str, str]:
    names = "id", "paper", "measured", "modelled", "verdict"
    cells = dict(zip(COLUMNS, (one[name] for name in names), strict=True))
    return cells | {WHY: why(one)}


def lines(found: Sequence[Result]) -> Iterator[str]:
    """Yield all that is known: a block of lines for each figure, and the counts of verdicts."""
    for one in found:
        yield f"{one['id']}: {summary(one)}"
        yield f"  {one['title']} ({one['source']})"
        for name in ("paper", "measured", "modelled"):
            yield f"  {name:10}{one[name]}"
            if name == "measured" and (conditions := under(one)):
                yield f"  {'under':10}{conditions}"
        for check in one["checks"]:
            yield f"  {'check':10}{described(check)}"
        yield ""
    yield counted(found)


def counted(found: Sequence[Result]) -> str:
    """Return how many figures have each verdict."""
    return "; ".join(f"{count} {verdict}" for verdict, count in _counts(found).items() if count) + "."


def summary(one: Result) -> str:
    """Return a figure's verdict, with the number of its checks that hold where some don't, and of fitted ones."""
    verdicts = [check["verdict"] for check in one["checks"]]
    holding, fitted = sum(map(verdicts.count, (REPRODUCED, HOLDS))), verdicts.count(NO_EVIDENCE)
    count = len(verdicts) - fitted
    text = one["verdict"] if holding == count else f"{one['verdict']}, {holding} of {count} checks hold"
    return f"{text}, {fitted} fitted" if fitted else text


def under(one: Result) -> str:
    """Return when a figure was measured, and beside which other work; "" for a model alone."""
    kept = one["kept"]
    if not kept.get("measured"):
        return ""
    other = f"load {kept['load']}" if "load" in kept else "with other work"
    other = f"other work on {kept['busy']:.2g} cores" if "busy" in kept else other
    rate = f", sgemm {kept['sgemm']:.3g} GFLOP/s of a core" if "sgemm" in kept else ""
    return f"{kept['date']}, {other}{rate}"


def described(check: Result) -> str:
    """Return a check in one line: what was checked, what was found, what was expected, the verdict."""
    if check["found"] is None:
        return f"{check['what']}: {check['verdict']}, {check['why']}"
    return f"{check['what']}: {check['found']:.4g}, expected {expected(check)}: {verdict(check)}"


def expected(check: Result) -> str:
    """Return the range that a check allows."""
    low, high = check["low"], check["high"]
    if low is None:
        return f"at most {high:.4g}"
    if high is None:
        return f"at least {low:.4g}"
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def verdict(check: Result) -> str:
    """Return the verdict, and by how much the figure was missed."""
    return f"{check['verdict']}, by {check['by']:.4g}" if check["verdict"] in MISSED else check["verdict"]


def _counts(found: Sequence[Result]) -> dict[str, int]:
    return {name: sum(one["verdict"] == name for one in found) for name in VERDICTS}
