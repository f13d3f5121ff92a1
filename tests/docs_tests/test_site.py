"""The site: Sphinx builds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from blocks import DOCS

pytestmark = [pytest.mark.mpi_skip, pytest.mark.watchdog(600)]


def test_sphinx_builds_the_pages_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert (built.returncode, built.stderr) == (0, "")
    assert "Communicator" in (tmp_path / "reference.html").read_text()
