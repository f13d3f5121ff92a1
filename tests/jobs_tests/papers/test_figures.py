"""All figures: their sentences, inputs, pictures and pages."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from paper_figures import MODULES, ROOT, module

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]
PICTURES, MOST = ROOT / "docs/papers", 1 << 20  # bytes of all pictures


def test_each_figure_quotes_at_most_25_words_and_says_where_they_stand() -> None:
    figures, words = module("run").figures(), module("figure").WORDS
    assert len(figures) == 29
    for figure in figures.values():
        assert 3 < len(figure.quote.split()) <= words and "section" in figure.where + figure.paper, figure.id
        assert figure.title and figure.paper and figure.differs, figure.id


def test_each_module_of_a_figure_has_a_sentence() -> None:
    figures = module("run").figures()
    stems = {name for name in MODULES if name.rpartition("_")[2].isdigit()}
    assert stems <= {name.replace("-", "_") for name in figures}
    untested = {name for name, one in figures.items() if isinstance(one, module("figure").Untested)}
    assert untested == {name for name in figures if name.replace("-", "_") not in stems}


def test_each_input_says_where_it_comes_from_and_lies_in_its_range() -> None:
    origins = module("figure").ORIGINS
    for figure in module("run").figures().values():
        for one in figure.inputs:
            assert one.origin in origins and one.where, (figure.id, one.name)
            assert (one.low is None or one.low <= one.value) and (one.high is None or one.value <= one.high), one.name


def test_the_pages_and_the_readme_s_table_are_those_of_what_is_kept(tmp_path: Path) -> None:
    """They are not stale: `bash jobs/papers.sh --keep` writes them anew."""
    readme = ROOT / "README.md"
    (tmp_path / "README.md").write_text(readme.read_text())
    module("pages").write(tmp_path, tmp_path / "README.md", list(module("run").figures().values()))
    stale = [path.name for path in tmp_path.glob("*.md") if path.name != "README.md"]
    stale = [name for name in stale if (tmp_path / name).read_text() != (PICTURES / name).read_text()]
    assert stale == [] and (tmp_path / "README.md").read_text() == readme.read_text()


def test_a_verdict_is_inconclusive_while_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages, figures = module("pages"), module("run").figures()
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    found = [pages.shown(figures[name]).judged.verdict for name in ("s-caffe-11", "parax-13", "s-caffe-9")]
    assert found == ["inconclusive", "inconclusive", "differs"]


def test_each_tested_figure_has_a_picture_and_all_are_small() -> None:
    pages, figures = module("pages"), module("run").figures().values()
    tested = {one.id for one in figures if pages.shown(one).judged.verdict != module("verdicts").NOT_TESTABLE}
    pictures = list(PICTURES.glob("*.png"))
    assert {path.stem for path in pictures} == tested
    assert sum(path.stat().st_size for path in pictures) <= MOST


def test_each_figure_draws_the_paper_s_points() -> None:
    picture = pytest.importorskip("matplotlib.figure").Figure()
    pages = module("pages")
    for figure in module("run").figures().values():
        if figure.id not in {path.stem for path in PICTURES.glob("*.png")}:
            continue
        axes = picture.subplots()
        found = pages.kept(figure.id)
        figure.draw(axes, found.get("measured", {}), pages.modelled(figure, found))
        assert any("paper" in label for label in axes.get_legend_handles_labels()[1]), figure.id
        picture.clear()


def test_the_readme_has_at_most_eight_rows_and_how_many_of_how_many() -> None:
    pages = module("pages")
    shown = [replace(pages.shown(one), kept={"seconds": 60}) for one in module("run").figures().values()]
    assert "Measurements take 29 minutes." in "".join(pages.overview(shown))
    lines = list(pages.headlines(shown))
    assert len(lines) - 2 <= 8 and lines[-1].startswith("\nOf 29 figures' headlines ")


@pytest.mark.parametrize("name", MODULES)
def test_no_module_hides_another(name: str) -> None:
    assert name not in sys.stdlib_module_names
    assert name not in {path.stem for folder in ("jobs/bench", "tests") for path in (ROOT / folder).rglob("*.py")}
