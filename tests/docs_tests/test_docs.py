"""The documentation: each `sh` and `python` block of its pages runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from blocks import DOCS, FENCE, ROOT, SHORTER, run

PAGES = {page.stem: FENCE.findall(page.read_text()) for page in sorted(DOCS.glob("*.md"))}
ELSEWHERE = "quickstart", "torch"  # here in a fixture; in tests/jobs_tests/test_torch_examples.py
LENET = {
    "train_test": {"batch_size: 64": "batch_size: 4", "batch_size: 60": "batch_size: 6"},
    "solver": {
        "base_lr: 0.02": "base_lr: 0.002", "max_iter: 400": "max_iter: 40", "snapshot: 200": "snapshot: 20",
        "test_interval: 100": "test_interval: 10", "display: 50": "display: 5",
    },
}  # fmt: skip

pytestmark = [pytest.mark.mpi_skip, pytest.mark.watchdog(600)]  # they start an mpirun of their own


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder after the quickstart: its data, its weights, and jobs/ with few iterations of small batches."""
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "jobs", folder / "jobs")
    for name, changes in LENET.items():
        for old, new in changes.items():
            replace(folder / f"jobs/lenet/{name}.prototxt", old, new)
    for language, block in PAGES["quickstart"]:
        run(language, block, folder)
    return folder


def test_the_quickstart_leaves_what_the_other_pages_use(folder: Path) -> None:
    assert (folder / "build/quickstart/lenet_iter_40.caffemodel").exists()


@pytest.mark.parametrize("old", SHORTER)
def test_what_is_done_on_a_tenth_stands_in_the_pages(old: str) -> None:
    assert any(old in page.read_text() for page in DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", [page for page, blocks in PAGES.items() if blocks and page not in ELSEWHERE])
def test_the_blocks_of_a_page_run(page: str, folder: Path) -> None:
    ran = {line for _, block in PAGES["quickstart"] for line in block.splitlines()}
    for language, block in PAGES[page]:
        run(language, "\n".join(line for line in block.splitlines() if line not in ran), folder)
