"""How the MPI library is loaded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from mpi4py import MPI

from scaffe.parallel import mpi_library

OPEN = "import os; from scaffe.parallel.world import open_world; open_world(); print(os.environ.get('OMPI_MCA_btl'))"
pytestmark = [
    pytest.mark.mpi_skip,
    pytest.mark.skipif(MPI.get_vendor()[0] != "Open MPI", reason="only Open MPI opens fabrics for one process"),
]


def opened(**environment: str) -> tuple[str, str]:
    """Return the transports that Open MPI says a process has, and those of the programs that this one starts."""
    told = os.environ | {"OMPI_MCA_btl_base_verbose": "20"} | environment
    run = subprocess.run([sys.executable, "-c", OPEN], capture_output=True, text=True, env=told, check=True)
    return run.stderr, run.stdout.strip()


def test_a_process_that_is_alone_opens_no_fabric(monkeypatch) -> None:
    monkeypatch.delenv("OMPI_MCA_btl", raising=False)
    said, left = opened()
    assert "component self" in said and "component ofi" not in said
    assert left == "None"


def test_a_process_that_is_alone_makes_no_shared_memory_that_it_would_leave_when_killed(monkeypatch) -> None:
    monkeypatch.delenv("OMPI_MCA_btl", raising=False)
    code = f"{OPEN}; print(*[line for line in open('/proc/self/maps') if '/dev/shm/' in line])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["None"]


@pytest.mark.parametrize("launcher", mpi_library.LAUNCHED)
def test_a_process_that_a_launcher_has_started_may_need_fabrics(monkeypatch, launcher: str) -> None:
    for name in (*mpi_library.LAUNCHED, mpi_library.TRANSPORTS):
        monkeypatch.delenv(name, raising=False)
    with mpi_library._few_transports():
        assert os.environ[mpi_library.TRANSPORTS] == "^uct,ofi,sm"
    monkeypatch.setenv(launcher, "0")
    with mpi_library._few_transports():
        assert mpi_library.TRANSPORTS not in os.environ


def test_transports_that_are_chosen_stay() -> None:
    said, left = opened(OMPI_MCA_btl="self,tcp")
    assert "component tcp" in said
    assert left == "self,tcp"
