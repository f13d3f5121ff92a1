"""The programs of docs/torch.md run, outside the checkout."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from blocks import DOCS, FENCE

PROGRAMS = [block for language, block in FENCE.findall((DOCS / "torch.md").read_text()) if language == "python"]
LONGEST = 60  # lines of an example
EACH = """if True:
    import runpy, sys
    for number in range(int(sys.argv[1])):
        runpy.run_path(f"program{number}.py", run_name="__main__")
    print("all have run")
"""

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


def test_the_programs_of_the_page_run(mpirun, tmp_path: Path) -> None:
    """One after the other in the same ranks: PyTorch takes longer to import than they to run."""
    for number, program in enumerate(PROGRAMS):
        assert len(program.splitlines()) <= LONGEST
        (tmp_path / f"program{number}.py").write_text(program)
    done = mpirun(2, sys.executable, "-c", EACH, str(len(PROGRAMS)), timeout=400, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("all have run") == 2
