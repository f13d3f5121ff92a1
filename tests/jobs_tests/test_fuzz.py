"""The fuzzing program on the seeds that every change has to stand; longer runs are by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment

FUZZ = Path(__file__).resolve().parents[1] / "fuzz.py"

pytestmark = pytest.mark.mpi_skip


def test_damaged_files_of_every_kind_are_errors_of_our_own(tmp_path: Path) -> None:
    command = [sys.executable, FUZZ, "--cases", "100", "--seed", "1", "--keep", tmp_path / "findings"]
    run = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr
    assert not (tmp_path / "findings").exists()


DEFECTS = """
import os, sys
sys.path.insert(0, FOLDER)
import fuzz, fuzz_seeds

def reads(path):
    number = reads.cases = getattr(reads, "cases", -1) + 1
    if number == 3:
        raise ZeroDivisionError("a defect")
    if number == 5:
        os.abort()

fuzz_seeds.make = lambda home: [fuzz_seeds.kind(home, "odd", b"content", "odd.bin", reads)]
sys.exit(fuzz.main(sys.argv[1:]))
"""


def test_a_defect_and_a_crash_are_found_and_their_inputs_kept(tmp_path: Path) -> None:
    program = DEFECTS.replace("FOLDER", repr(str(FUZZ.parent)))
    command = [sys.executable, "-c", program, "--cases", "6", "--keep", tmp_path / "kept"]
    run = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=900)
    assert run.returncode == 1
    assert "odd, case 3: 'ZeroDivisionError: a defect" in run.stdout
    assert "odd, case 5: the process died: -6" in run.stdout
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["odd-1-3.bin", "odd-1-5.bin"]
