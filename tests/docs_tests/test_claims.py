"""What the documentation claims: each test that tests/claims.md names exists, and its lists and figures hold."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from claims import CLAIMS, FIGURES, UNTESTED, chosen

from scaffe import layers

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TEST = re.compile(r"`(\w+(?:/\w+)*\.py)::(\w+(?:::\w+)?)`")

pytestmark = pytest.mark.mpi_skip


@cache
def functions_of(path: Path) -> set[str]:
    """Return the names of a file's test functions, and those of its classes as Class::function."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return {name for name in found if name.rpartition("::")[2].startswith("test_")}


def missing(named: str) -> list[str]:
    """Return the tests of a cell that don't exist."""
    files = [(file, name) for file, name in TEST.findall(named) if (ROOT / "tests" / file).is_file()]
    there = {f"`{file}::{name}`" for file, name in files if name in functions_of(ROOT / "tests" / file)}
    return [one for one in named.split(", ") if one not in there]


def test_each_test_that_a_claim_names_exists() -> None:
    assert len(CLAIMS) > 100
    assert [one for claim in CLAIMS if claim.tests != UNTESTED for one in missing(claim.tests)] == []


@pytest.mark.parametrize(
    "cell",
    [
        "`docs_tests/test_claims.py::test_that_there_is_not`",
        "`docs_tests/test_no_file.py::test_sphinx_builds_the_pages_without_a_warning`",
        "`docs_tests/test_claims.py::functions_of`",
        "a word",
    ],
)
def test_a_name_of_no_test_is_found_out(cell: str) -> None:
    good = "`docs_tests/test_claims.py::test_each_test_that_a_claim_names_exists`"
    assert missing(f"{good}, {cell}") == [cell]


def test_a_report_has_the_claims_with_a_word_and_their_tests() -> None:
    [one] = chosen(["is", "OPENMPI,"])
    *_, test = one.report().splitlines()
    assert one.pages == "quickstart.md" and test.strip().startswith("jobs_tests/test_scripts.py::test_an_mpi")


def test_each_page_that_a_claim_names_exists() -> None:
    pages = {page for claim in CLAIMS for page in re.findall(r"[\w.-]+", claim.pages)}
    assert not [page for page in pages if not (DOCS / page).is_file() and not (ROOT / page).is_file()]


def test_each_benchmark_that_a_figure_names_exists() -> None:
    benchmarks = re.findall(r"`(jobs/.*?)`", FIGURES)
    assert benchmarks and [one for one in benchmarks if not (ROOT / one).is_file()] == []


def test_the_documentation_lists_every_layer() -> None:
    text = (DOCS / "layers.md").read_text()
    listed = re.sub(r"\(.*?\)", "", re.search(r"by hand: (.*?)\.\n", text, re.DOTALL)[1], flags=re.DOTALL)
    assert sorted(re.findall(r"\w+", listed)) == sorted(layers.known_types())


@pytest.mark.parametrize("script", ["sbatch_openmpi.sh", "sbatch_mpich.sh"])
def test_the_batch_scripts_are_warned_as_early_as_the_documentation_says(script: str) -> None:
    said = re.search(r"SLURM sends USR1 (\d+) s before", (DOCS / "cluster.md").read_text())
    asked = re.search(r"^#SBATCH --signal=B:USR1@(\d+)$", (ROOT / "jobs" / script).read_text(), re.MULTILINE)
    assert said and asked and said[1] == asked[1]
