"""A rank that ends before the ranks know each other: the watch over it ends the job."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scaffe.parallel import start_watch

WATCH = sys.executable, "-I", "-S", start_watch.__file__
pytestmark = pytest.mark.mpi_skip


class Host:
    """Two ranks of a job, and what looks like their launcher."""

    def __init__(self, folder: Path):
        self.env = {"PMIX_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
        sleep = shutil.which("sleep")
        assert sleep
        launcher = shutil.copy(sleep, folder / "prterun")
        self.launcher = subprocess.Popen([launcher, "1000"])
        self.ranks = [subprocess.Popen([sleep, "1000"], env={**self.env, "PMIX_RANK": str(rank)}) for rank in range(2)]

    def watch(self, told: str) -> str:
        """Return what a watch writes to stderr whose stdin has this text."""
        given = [*WATCH, str(self.launcher.pid), str(self.ranks[0].pid)]
        return subprocess.run(given, env=self.env, input=told, stderr=subprocess.PIPE, text=True, check=True).stderr

    def end(self) -> None:
        for process in (self.launcher, *self.ranks):
            process.kill()
            process.wait()


@pytest.fixture
def host(tmp_path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.end()


@pytest.fixture(autouse=True)
def name() -> Iterator[None]:
    """Restore this process's name."""
    path = Path("/proc/self/comm")
    before = path.read_text()
    yield
    path.write_text(before)


def test_the_process_of_each_rank_is_found(host):
    found = start_watch.ranks_here(os.getpid())
    assert {rank: process for rank, (process, _) in found.items()} == {0: host.ranks[0].pid, 1: host.ranks[1].pid}


def test_a_rank_that_ends_is_named(host, monkeypatch):
    looks = []

    def wait(*args: object) -> tuple[list[object], list[object], list[object]]:
        looks.append(args)
        if len(looks) == 2:  # both have been seen
            host.ranks[1].kill()
            host.ranks[1].wait()
        assert len(looks) < 4
        return [], [], []

    monkeypatch.setattr(select, "select", wait)
    ended = start_watch.first_to_end(host.env, os.getpid(), 0)
    assert ended == f"rank 1 (process {host.ranks[1].pid})"


def test_a_rank_that_the_launcher_never_starts_has_ended(host, monkeypatch):
    monkeypatch.setattr(select, "select", lambda *args: ([], [], []))
    monkeypatch.setattr(start_watch, "LONGEST_START", 3)
    monkeypatch.setattr(start_watch, "is_launcher", lambda process: process == os.getpid())
    host.ranks[1].kill()
    host.ranks[1].wait()
    assert start_watch.first_to_end(host.env, os.getpid(), 0) == "a rank"


def test_the_watch_ends_once_the_ranks_know_each_other(host):
    assert host.watch(".") == ""
    assert host.launcher.poll() is None


def test_a_rank_that_ends_without_saying_so_ends_the_launcher(host):
    said = host.watch("")
    assert re.fullmatch(
        rf"scaffe: rank 0 \(process {host.ranks[0].pid}\) on \S+ has ended before all ranks had started; .*\n", said
    )
    assert host.launcher.wait() == -signal.SIGTERM


PROGRAM = """
import os, signal, sys
from pathlib import Path
from scaffe.parallel import world
from scaffe.parallel.start_watch import NAME, parent_and_start

def is_watched():
    for folder in Path("/proc").glob("[0-9]*"):
        parent, _ = parent_and_start(int(folder.name))
        if parent and parent_and_start(int(parent))[0] == str(os.getppid()):
            try:
                if (folder / "comm").read_text().strip() == NAME:
                    return True
            except OSError:
                pass

def end(*given):
    while not is_watched():
        pass
    os.kill(os.getpid(), signal.SIGKILL)

if os.environ["PMIX_RANK"] == sys.argv[1]:
    setattr(world, sys.argv[2], end)
world.open_world()
"""


@pytest.mark.parametrize("lost", ["0 watched_start", "1 _check_launcher"])  # before MPI_Init, and behind it
def test_a_rank_that_is_lost_while_mpi_starts_ends_the_job(tolerant_mpirun, tmp_path, lost):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = "--with-ft", "ulfm", sys.executable, tmp_path / "program.py", *lost.split()
    result = tolerant_mpirun(3, *command, timeout=120)
    assert result.returncode != 0
    who = rf"rank {lost[0]} \(process \d+\) on \S+|a rank on \S+|a rank"
    assert re.search(rf"^scaffe: ({who}) has ended before all ranks had started; start", result.stderr, re.M)
    assert "Traceback" not in result.stderr
