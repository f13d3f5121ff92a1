"""scaffe papers: the table of the results that the package has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scaffe import papers
from scaffe.cli import main


def check(what: str, found: float | None, verdict: str, **more: object) -> dict[str, object]:
    return {"what": what, "found": found, "low": 1.0, "high": None, "verdict": verdict, "by": 0.0, "why": ""} | more


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two results, the less telling one first by name."""
    for rank, name, verdict in ((2, "a-paper-1", papers.NOT_REPRODUCED), (1, "b-paper-2", papers.REPRODUCED)):
        checks = [check("speed", 0.5, verdict, by=0.5)]
        if verdict == papers.REPRODUCED:
            checks = [check("speed", 2.0, verdict), check("time", None, papers.NOT_MEASURABLE, why="no cluster")]
        words = dict.fromkeys(("title", "source", "paper", "measured", "modelled"), f"text of {name}")
        if name == "b-paper-2":
            checks.append(check("rate", 1.0, papers.NO_EVIDENCE))
        kept = {"measured": {"s": 1}, "date": "2026-01-02 03:04", "busy": 0.75, "sgemm": 41.26} if rank == 2 else {}
        found = {"rank": rank, "id": name, "verdict": verdict, "checks": checks, "kept": kept, **words}
        (tmp_path / f"{name}.json").write_text(json.dumps(found))
    return tmp_path


def test_the_most_telling_figure_is_first_and_a_miss_has_its_distance(folder: Path) -> None:
    text = list(papers.lines(papers.results(folder)))
    assert [line for line in text if not line.startswith(" ")] == [
        "b-paper-2: reproduced, 1 of 2 checks hold, 1 fitted", "", "a-paper-1: not reproduced, 0 of 1 checks hold", "",
        "1 reproduced; 1 not reproduced.",
    ]  # fmt: skip
    checks = [line.split("check", 1)[1].strip() for line in text if line.startswith("  check")]
    assert checks == [
        "speed: 2, expected at least 1: reproduced",
        "time: not measurable here, no cluster",
        "rate: 1, expected at least 1: fitted, no evidence",
        "speed: 0.5, expected at least 1: not reproduced, by 0.5",
    ]
    under = [line.split("under", 1)[1].strip() for line in text if line.startswith("  under")]
    assert under == ["2026-01-02 03:04, other work on 0.75 cores, sgemm 41.3 GFLOP/s of a core"]


def test_the_table_has_a_line_for_each_figure_with_the_check_that_is_missed(folder: Path) -> None:
    head, first, second, counts = papers.table(papers.results(folder))
    assert head.split() == ["figure", "paper", "measured", "here", "modelled", "verdict", "why"]
    assert first.split("text of b-paper-2")[0].strip() == "b-paper-2" and first.endswith("no cluster")
    assert second.startswith("a-paper-1 ") and "not reproduced" in second
    assert second.endswith("  speed: 0.5, expected at least 1")
    assert counts == "1 reproduced; 1 not reproduced."


def test_a_long_text_is_cut_between_words() -> None:
    assert papers.cut("AlexNet 715x, 562x, 410x", 24) == "AlexNet 715x, 562x, 410x"
    assert papers.cut("AlexNet 715x, 562x, 410x", 23) == "AlexNet 715x, 562x..."


def test_the_command_prints_a_line_a_figure_or_all_checks(capsys: pytest.CaptureFixture) -> None:
    count = len(papers.results())
    assert main(["papers"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == count + 2
    assert main(["papers", "--checks"]) == 0
    assert capsys.readouterr().out.count("  check") == sum(len(one["checks"]) for one in papers.results())


def test_the_package_has_results_and_the_command_prints_those_that_are_named(capsys: pytest.CaptureFixture) -> None:
    known = [result["id"] for result in papers.results()]
    assert known[0] == "numa-caffe-8"
    assert main(["papers", known[-1]]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{known[-1]}: ") and known[0] not in printed


def test_an_empty_word_is_no_figure(capsys: pytest.CaptureFixture) -> None:
    assert main(["papers", ""]) == 2
    assert capsys.readouterr().err.startswith("scaffe: unknown figure ''; known: ")


def test_an_unknown_figure_is_an_error_with_the_known_ones(capsys: pytest.CaptureFixture) -> None:
    assert main(["papers", "s-caffe-99"]) == 2
    error = capsys.readouterr().err
    assert "unknown figure 's-caffe-99'; known: beyond-1 numa-caffe-3 numa-caffe-5 numa-caffe-8 " in error
    assert error.count("\n") == 1
