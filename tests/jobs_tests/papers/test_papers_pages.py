"""The pages that are made of the figures' results."""

from __future__ import annotations

from pathlib import Path

import pytest
from paper_figures import ROOT, module

from scaffe import papers

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


def made(name: str, checks: list, kept: dict) -> dict:
    """Return the result of a made-up figure with these checks."""
    base = module("figure")

    class MadeUp(base.Figure):
        id, rank, title, source, paper = name, 1, f"Title of {name}", "section 1", "2x"
        inputs = (base.Input("alpha", 2e-6, "s", base.ASSUMED, "a guess"),)
        unexplained = ("Why.",)

        def check(self, measured: dict, modelled: dict) -> list:
            return checks

        def words(self, measured: dict, modelled: dict) -> tuple[str, str]:
            return "3x", "4x"

        def table(self, measured: dict, modelled: dict) -> list:
            return ["| a | b |"]

    return base.result(MadeUp(), kept)


def test_a_page_has_verdicts_bounds_inputs_and_what_is_unexplained() -> None:
    base, pages = module("figure"), module("pages")
    checks = [base.within("speed", 3.0, 2.0, 0.1), base.holds("order", False), base.holds("sign", True)]
    kept = {"measured": {"x": 1}, "date": "2026-01-02 03:04", "busy": 0.1, "sgemm": 50.0, "machine": "2 cores"}
    lines = list(pages.page("ParaX", [made("parax-1", checks, kept)]))
    assert lines[0] == "# ParaX, reproduced" and not any("other work ran" in line for line in lines)
    assert any(line.startswith("| [parax-1](#parax-1) | Title of parax-1 | 2x | 3x | 2026-01-02") for line in lines)
    assert "not reproduced, 1 of 3 checks hold |" in next(line for line in lines if line.startswith("| [parax-1]"))
    assert "| speed | 3 | 1.8 to 2.2 | not reproduced, by 0.8 |" in lines
    assert "| order | 0 | 1 | not reproduced, by 1 |" in lines and "| sign | 1 | 1 | reproduced |" in lines
    assert "| alpha | 2e-06 | s | assumed | a guess |" in lines
    assert lines[-1] == "- Why." and "| a | b |" in lines and "![Title of parax-1](parax-1.png)\n" in lines


def test_a_figure_that_could_not_be_measured_has_its_reason_and_other_work_is_told() -> None:
    base, pages = module("figure"), module("pages")
    alone = made("parax-1", [base.Check("speed", 1.0, high=2.0)], {"why": "no root"})
    assert alone["verdict"] == "not measurable here"
    lines = list(pages.page("ParaX", [alone]))
    assert "Not measured: no root.\n" in lines and "| measurement | - | no root | not measurable here |" in lines
    assert "| speed | 1 | at most 2 | reproduced |" in lines
    for busy in ({"busy": 0.5}, {}):
        kept = {"measured": {"x": 1}, "date": "", "machine": "", **busy}
        text = list(pages.page("ParaX", [alone | {"id": "x-1", "kept": kept}]))
        assert "Measured while other work ran, which distorts times: x-1.\n" in text


def test_each_paper_gets_its_own_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, pages = module("figure"), module("pages")
    found = [made(name, [base.holds("sign", True)], {"measured": {}}) for name in ("s-caffe-1", "singlecaffe-2")]
    monkeypatch.setattr(pages, "results", lambda: found)
    (tmp_path / "README.md").write_text("about")
    pages.write(tmp_path, tmp_path / "README.md", ["s-caffe-1", "singlecaffe-2"])
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", "figures.md", "s-caffe.md", "singlecaffe.md"}
    assert (tmp_path / "README.md").read_text() == "about"
    text = (tmp_path / "s-caffe.md").read_text()
    assert "s-caffe-1" in text and "singlecaffe-2" not in text and "## Not reproduced here" in text


def test_the_pages_and_the_readme_s_table_are_those_of_the_results(tmp_path: Path) -> None:
    """They are not stale: `bash jobs/papers.sh --keep numa-caffe-8` writes them anew."""
    readme = ROOT / "README.md"
    (tmp_path / "README.md").write_text(readme.read_text())
    module("pages").write(tmp_path, tmp_path / "README.md", list(module("run").figures()))
    written = {path.name: path.read_text() for path in (*(ROOT / "docs/papers").glob("*.md"), readme)}
    made = {path.name: path.read_text() for path in tmp_path.glob("*.md")}
    assert set(made) == set(written)
    assert [name for name in made if made[name] != written[name]] == []


def test_the_table_has_all_figures_the_headlines_first_and_the_minutes() -> None:
    base, pages = module("figure"), module("pages")
    assert set(pages.HEADLINES) <= set(module("run").figures()) and len(set(pages.HEADLINES)) == 10
    long = made("s-caffe-11", [base.holds("sign", True)], {"measured": {"x": 1}, "seconds": 90}) | {"paper": "2x " * 99}
    off = [base.within("SC-OBR here: model over measured", 1.2, 1.0, 0.1)]
    found = [made("a-1", off, {"measured": {"x": 1}, "seconds": 30}), long]
    lines = [line for line in "\n".join(pages.overview(found)).split("\n") if line]
    rows = [line for line in lines if line.startswith("| [")]
    assert rows[0].startswith("| [s-caffe-11](s-caffe.md#s-caffe-11): Title of s-caffe-11 | 2x 2x")
    assert rows[1].startswith("| [a-1](a.md#a-1): Title of a-1 | 2x | 3x | 4x | not reproduced, 0 of 1")
    assert "2x... |" in rows[0] and len(rows[0]) < 320 and len(rows) == 2
    assert "1 reproduced; 1 not reproduced. Their measurements take 2 minutes, models and pictures some more." in lines
    assert lines[lines.index("a-1.") - 1].endswith("It misses in:")


def test_the_readme_s_table_stands_between_its_marks() -> None:
    base, pages = module("figure"), module("pages")
    found = [made(name, [base.holds("sign", True)], {"measured": {}}) for name in ("s-caffe-11", "a-1")]
    text = pages.in_readme("a\n<!-- figures -->\nold\n<!-- end -->\nb\n", found)
    row = "| [s-caffe-11](docs/papers/s-caffe.md#s-caffe-11) | Title of s-caffe-11 | reproduced |"
    assert text.split("\n")[4] == row and text.endswith(f"{row}\n<!-- end -->\nb\n") and "old" not in text
    assert pages.in_readme(text, found) == text
    assert papers.REPRODUCED in text
