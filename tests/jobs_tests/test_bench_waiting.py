"""The benchmark of waiting trains the net that it says, and tells a share or what went wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nets
import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.mpi_skip  # it starts a job of its own


@pytest.fixture
def bench(tmp_path):
    """Run the benchmark with a database for some iterations."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def run(source: str, iterations: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "jobs/bench/waiting.py"), source, str(iterations)]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)

    return run


def test_the_share_of_waiting_is_told(bench, tmp_path):
    nets.write_images(tmp_path / "db", 200, (3, 32, 32))
    run = bench("db", 3)
    said = re.fullmatch(r"([\d.]+) % of the time spent waiting for records\n", run.stdout)
    assert said, run.stderr
    assert 0 <= float(said[1]) <= 100


def test_a_training_that_fails_is_shown(bench):
    run = bench("missing", 3)
    assert run.returncode and "missing: the LMDB or LevelDB can't be opened" in run.stderr
