"""The programs of docs/torch.md run on 2 and 3 ranks, outside the checkout."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from blocks import DOCS, FENCE

PROGRAMS = [block for language, block in FENCE.findall((DOCS / "torch.md").read_text()) if language == "python"]
LONGEST = 60  # lines of an example

pytestmark = [
    pytest.mark.mpi_skip,
    pytest.mark.watchdog(600),
    pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs PyTorch: pip install 'scaffe[torch]'"),
]


def test_ranks_go_on_without_one_that_has_died(tolerant_mpirun, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(next(one for one in PROGRAMS if "shrink" in one))
    done = tolerant_mpirun(3, "--with-ft", "ulfm", sys.executable, str(program), timeout=200, cwd=tmp_path)
    assert done.stdout.count("6 iterations, 2 ranks at the end") == 2, done.stdout + done.stderr


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_page_runs(mpirun, tmp_path: Path, number: int, ranks: int) -> None:
    assert len(PROGRAMS[number].splitlines()) <= LONGEST
    program = tmp_path / "program.py"
    program.write_text(PROGRAMS[number])
    done = mpirun(ranks, sys.executable, str(program), timeout=200, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
