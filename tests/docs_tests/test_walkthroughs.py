"""The walkthroughs of docs/pycaffe/: the blocks of each are one program, which runs and draws the page's pictures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from blocks import DOCS, FENCE, run

PROGRAMS = {page.stem: page.read_text() for page in sorted(DOCS.glob("pycaffe/*.md"))}
PICTURE = re.compile(r"!\[.*\]\(\.\./pictures/(.*)\)")

pytestmark = [pytest.mark.mpi_skip, pytest.mark.watchdog(600)]


@pytest.mark.parametrize("page", PROGRAMS)
def test_a_walkthrough_runs_in_an_empty_folder_and_draws_its_pictures(page: str, tmp_path: Path) -> None:
    text = PROGRAMS[page]
    run("python", "\n".join(block for _, block in FENCE.findall(text)), tmp_path, OMP_NUM_THREADS="1")
    pictures = PICTURE.findall(text)
    assert pictures
    for picture in pictures:
        assert (tmp_path / picture).read_bytes()[:4] == b"\x89PNG"
        assert (DOCS / "pictures" / picture).exists()
