"""All figures: results, inputs and verdicts."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from paper_figures import MODULES, ROOT, module

from scaffe import papers

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


def test_each_figure_has_a_result() -> None:
    assert {one["id"] for one in papers.results()} == set(module("run").figures())


def ten_digits(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result as JSON keeps it, its numbers rounded."""
    return json.loads(json.dumps(result), parse_float=lambda number: float(f"{float(number):.10g}"))


@pytest.mark.parametrize("name", [one["id"] for one in papers.results()])
def test_a_result_is_what_its_figure_makes_of_what_it_keeps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it but what slow models predict, which is taken from the result; to ten digits, as processors round."""
    figure = module("run").figures()[name]
    written = json.loads((papers.FOLDER / f"{name}.json").read_text())
    if figure.slow:
        monkeypatch.setattr(figure, "model", lambda measured: written["model"])
    made, written = map(ten_digits, (module("figure").result(figure, written["kept"]), written))
    stale = [key for key in made | written if made.get(key) != written.get(key)]
    assert stale == [], f"write it anew: bash jobs/papers.sh --keep {name}"


def test_each_input_says_where_it_comes_from() -> None:
    origins = module("figure").ORIGINS
    for figure in module("run").figures().values():
        assert all(one.origin in origins and one.where for one in figure.inputs), figure.id


def test_a_check_is_as_strict_as_its_bounds() -> None:
    check = module("figure").Check
    assert [check("", found, 1, 2).verdict for found in (0.9, 1, 2, 2.1, float("nan"), float("inf"), None)] == [
        papers.NOT_REPRODUCED, papers.REPRODUCED, papers.REPRODUCED, papers.NOT_REPRODUCED, papers.NOT_REPRODUCED,
        papers.NOT_REPRODUCED, papers.NOT_MEASURABLE,
    ]  # fmt: skip
    assert check("", 2.5, 1, 2).by == 0.5 and check("", 0.5, 1, 2).by == 0.5


def test_a_check_on_what_was_fitted_is_no_evidence_for_and_counts_where_it_is_missed() -> None:
    base = module("figure")
    held, missed = (base.Check("", found, 1, 2, fitted=True).verdict for found in (1.5, 3.0))
    assert (held, missed) == (papers.NO_EVIDENCE, papers.NOT_REPRODUCED)
    assert base.worst([held, papers.REPRODUCED]) == papers.REPRODUCED
    assert base.worst([held]) == papers.NO_EVIDENCE
    assert base.worst([held, missed]) == base.worst([held, papers.NOT_REPRODUCED]) == papers.NOT_REPRODUCED


def test_what_the_papers_inputs_were_fitted_on_is_no_evidence() -> None:
    fitted = {
        "s-caffe-8": {"160 over 32 GPUs (computing"},
        "parax-11": {"bandwidth used, one instance"},
    }
    for name, wanted in fitted.items():
        (one,) = (one for one in papers.results() if one["id"] == name)
        found = {check["what"] for check in one["checks"] if check["verdict"] == papers.NO_EVIDENCE}
        assert len(found) == len(wanted) and all(any(what.startswith(text) for what in found) for text in wanted), name


@pytest.mark.parametrize("name", MODULES)
def test_no_module_hides_another(name: str) -> None:
    assert name not in sys.stdlib_module_names
    assert name not in {path.stem for folder in ("jobs/bench", "tests") for path in (ROOT / folder).rglob("*.py")}
