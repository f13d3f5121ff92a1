"""The three programs with which docs/collectives.md begins run on 2 and 4 ranks, outside the checkout."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from blocks import DOCS, FENCE

PROGRAMS = [block for language, block in FENCE.findall((DOCS / "collectives.md").read_text()) if language == "python"]

pytestmark = pytest.mark.mpi_skip


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("number", range(3))
def test_a_program_of_the_page_runs(mpirun, tmp_path: Path, number: int, ranks: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAMS[number])
    done = mpirun(ranks, sys.executable, "-m", "mpi4py", str(program), timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
