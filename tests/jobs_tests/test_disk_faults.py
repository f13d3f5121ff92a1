"""A full disk, really: no snapshot that was written before is lost."""

from __future__ import annotations

import os
import subprocess

import pytest
from conftest import ROOT, environment

pytestmark = pytest.mark.mpi_skip  # it starts an mpirun of its own


def test_no_snapshot_is_lost_on_a_full_disk() -> None:
    if os.getuid() != 0:
        pytest.skip("only root mounts a disk that becomes full")
    command = [ROOT / "jobs/lab/disk_faults.sh", "full"]
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=900)
    if "left out" in run.stdout:
        pytest.skip("this machine mounts no tmpfs")
    assert run.returncode == 0, run.stderr
    ways = [line.split(":")[0].split()[-1] for line in run.stdout.splitlines() if line.startswith("ok")]
    assert ways[:2] == ["waiting", "async"]
