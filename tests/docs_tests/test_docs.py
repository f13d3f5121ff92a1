"""The documentation: Sphinx builds it without a warning, and each of its `sh` and `python` blocks runs.

The blocks of a page of docs/pycaffe/ are one program.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = {page.stem: FENCE.findall(page.read_text()) for page in sorted(DOCS.glob("*.md"))}
PROGRAMS = {page.stem: page.read_text() for page in sorted(DOCS.glob("pycaffe/*.md"))}
PICTURE = re.compile(r"!\[.*\]\(\.\./pictures/(.*)\)")
# test_installed.py trains as the quickstart says; here commands do their work on a tenth of it.
ITERATIONS, SHORTER = "_iter_400.", "_iter_40."
LENET = {
    "train_test": {"batch_size: 64": "batch_size: 4", "batch_size: 60": "batch_size: 6"},
    "solver": {
        "base_lr: 0.02": "base_lr: 0.002", "max_iter: 400": "max_iter: 40", "snapshot: 200": "snapshot: 20",
        "test_interval: 100": "test_interval: 10", "display: 50": "display: 5",
    },
}  # fmt: skip

pytestmark = [pytest.mark.mpi_skip, pytest.mark.watchdog(600)]  # they start an mpirun of their own


def run(language: str, block: str, folder: Path, **more: str) -> None:
    """Run a block in `folder`, each line of a shell block to its success; `more` is of its environment."""
    block = block.replace(ITERATIONS, SHORTER)
    command = ["bash", "-euo", "pipefail", "-c", block] if language == "sh" else [sys.executable, "-c", block]
    env = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"} | more
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env)
    assert done.returncode == 0, f"{block}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"


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
    assert (folder / f"build/quickstart/lenet{SHORTER}caffemodel").exists()


@pytest.mark.parametrize("page", [page for page, blocks in PAGES.items() if blocks and page != "quickstart"])
def test_the_blocks_of_a_page_run(page: str, folder: Path) -> None:
    for language, block in PAGES[page]:
        run(language, block, folder)


@pytest.mark.parametrize("page", PROGRAMS)
def test_a_walkthrough_runs_in_an_empty_folder_and_draws_its_pictures(page: str, tmp_path: Path) -> None:
    text = PROGRAMS[page]
    run("python", "\n".join(block for _, block in FENCE.findall(text)), tmp_path, OMP_NUM_THREADS="1")
    pictures = PICTURE.findall(text)
    assert pictures
    for picture in pictures:
        assert (tmp_path / picture).read_bytes()[:4] == b"\x89PNG"
        assert (DOCS / "pictures" / picture).exists()


def test_sphinx_builds_the_pages_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert (built.returncode, built.stderr) == (0, "")
    assert "Communicator" in (tmp_path / "reference.html").read_text()
