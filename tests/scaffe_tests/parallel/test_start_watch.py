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
from patience import patient

from scaffe.parallel import start_watch

WATCH = sys.executable, "-I", "-S", start_watch.__file__
pytestmark = pytest.mark.mpi_skip


class Host:
    """Two ranks of a job, and what looks like their launcher."""

    def __init__(self, folder: Path, name: str = "prterun"):
        self.env = {"PMIX_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
        sleep = shutil.which("sleep")
        assert sleep
        launcher = shutil.copy(sleep, folder / name)
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


@pytest.fixture
def wrapped(tmp_path) -> Iterator[Host]:
    """Ranks whose parent is not the launcher."""
    made = Host(tmp_path, "wrapper")
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


@pytest.mark.parametrize("can_be_named", [True, False])
def test_a_rank_that_ends_is_named(host, monkeypatch, can_be_named):
    looks: list[object] = []

    def refuse(*args: object) -> None:
        raise PermissionError

    def wait(*args: object) -> tuple[list[object], list[object], list[object]]:
        looks.append(args)
        if len(looks) == 2:  # both have been seen
            host.ranks[1].kill()
            os.waitid(os.P_PID, host.ranks[1].pid, os.WEXITED | os.WNOWAIT)  # a zombie, as its launcher may leave it
        assert len(looks) < 4
        return [], [], []

    if not can_be_named:
        monkeypatch.setattr(Path, "write_text", refuse)
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


def test_ranks_that_are_no_children_of_the_launcher_have_not_ended(host, monkeypatch):
    looks = iter([([], [], [])] * 9)
    monkeypatch.setattr(select, "select", lambda *args: next(looks))
    monkeypatch.setattr(start_watch, "LONGEST_START", 3)
    monkeypatch.setattr(start_watch, "ranks_here", lambda launcher: {})
    with pytest.raises(StopIteration):  # it still watched
        start_watch.first_to_end(host.env, os.getpid(), 0)


def test_a_rank_has_ended_whose_id_another_process_has(host, monkeypatch):
    monkeypatch.setattr(select, "select", lambda *args: ([], [], []))
    monkeypatch.setattr(start_watch, "ranks_here", lambda launcher: {1: (host.ranks[1].pid, "7")})
    assert start_watch.first_to_end(host.env, os.getpid(), 0) == f"rank 1 (process {host.ranks[1].pid})"


def test_while_the_launcher_starts_one_after_the_other_none_has_ended(host, monkeypatch):
    looks: list[object] = []
    me = os.getpid(), start_watch.parent_and_start(os.getpid())[1]

    def ranks_here(launcher: int) -> dict[int, tuple[int, str]]:
        looks.append(launcher)
        return dict.fromkeys(range(min(4, len(looks) // 3)), me)  # the fifth is never started

    monkeypatch.setattr(select, "select", lambda *args: ([], [], []))
    monkeypatch.setattr(start_watch, "LONGEST_START", 3)
    monkeypatch.setattr(start_watch, "is_launcher", lambda process: True)
    monkeypatch.setattr(start_watch, "ranks_here", ranks_here)
    assert start_watch.first_to_end({start_watch.PLACES: "5"}, os.getpid(), 0) == "a rank"
    assert len(looks) == 12 + 4


@pytest.mark.parametrize(
    ("place", "places", "ranks", "watched"),
    [("0", "1", "2", True), ("1", "3", "3", True), ("2", "3", "3", False), ("0", "1", "1", False)],
)
def test_the_first_two_of_a_host_start_a_watch_unless_a_rank_is_alone(monkeypatch, place, places, ranks, watched):
    made: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def popen(*args, **kwargs):
        made.append(start(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    given = {"PLACE": place, "PLACES": places, "RANKS": ranks, "RANK": place, "FAULT_TOLERANT": "1"}
    for name, value in given.items():
        monkeypatch.setenv(getattr(start_watch, name), value)
    with start_watch.watched_start():
        assert [one.poll() for one in made] == [None] * watched
    assert [one.returncode for one in made] == [0] * watched  # it is reaped


def test_an_interrupt_is_left_to_the_ranks(host):
    command = [*WATCH, str(os.getpid()), str(host.ranks[0].pid)]
    with subprocess.Popen(command, env=host.env, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as watch:
        name = Path(f"/proc/{watch.pid}/comm")
        assert patient(lambda _: name.read_text().strip() == start_watch.NAME, 60)
        watch.send_signal(signal.SIGINT)
        assert watch.communicate(start_watch.DONE) == (None, b"")
    assert watch.returncode == 0


def test_a_parent_that_is_not_the_launcher_is_not_ended(wrapped, monkeypatch):
    assert "rank 0 " in wrapped.watch("")
    wrapped.launcher.kill()
    assert wrapped.launcher.wait() == -signal.SIGKILL


def test_nothing_is_said_where_the_launcher_has_ended_the_job(host):
    host.launcher.kill()
    host.launcher.wait()
    assert host.watch("") == ""


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
