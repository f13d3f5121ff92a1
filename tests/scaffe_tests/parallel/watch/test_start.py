"""A rank that ends before the ranks know each other: the watch over them ends the job."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import patient

from scaffe.parallel.watch import start as start_watch
from scaffe.parallel.watch.start import Ranks

pytestmark = pytest.mark.mpi_skip
SLEEP = shutil.which("sleep") or ""

# A launcher's shell, which starts ranks. Each writes its process id once it is connected to the watch. After USR1 it
# tells the watch that the ranks know each other, and writes that it has.
LAUNCH = """
export OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_SIZE=2 OMPI_MCA_mpi_ft_enable=1
while [ $# -gt 0 ]; do
  PMIX_RANK=$(($# / 2 - 1)) "$1" -S -c "$2" &
  shift 2
done
wait
"""
RANK = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(start_watch.__file__).parent)!r})
import start as start_watch
watch = start_watch.connected()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.write(1, b"%s %d\\n" % (os.environ["PMIX_RANK"].encode(), os.getpid()))
signal.sigwait([signal.SIGUSR1])
start_watch.disconnect(watch)
os.write(1, b"told\\n")
signal.pause()
"""
DIES = "import os; os.kill(os.getpid(), 9)"


class Host:
    """What looks like a launcher, and two ranks that it starts, each a program in Python."""

    def __init__(self, folder: Path, programs: Sequence[str], front: Sequence[str]):
        launcher = shutil.copy(shutil.which("dash") or "/bin/sh", folder / "prterun")
        words = [word for program in reversed(programs) for word in (sys.executable, program)]
        command = [*front, launcher, "-c", LAUNCH, "launcher", *words]
        self.launcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.ranks: dict[int, int] = {}

    def read(self, count: int) -> None:
        """Wait until so many ranks are connected."""
        assert self.launcher.stdout
        for _ in range(count):
            rank, process = map(int, self.launcher.stdout.readline().split())
            self.ranks[rank] = process

    def end(self) -> None:
        for process in self.ranks.values():
            if start_watch.parent_and_start(process)[1]:
                os.kill(process, signal.SIGKILL)
        self.launcher.kill()
        self.launcher.communicate()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Callable[..., Host]]:
    """Make a host, by default with a watch that its launcher's command has started."""
    made: list[Host] = []

    def make(*programs: str, front: Sequence[str] = start_watch.PROGRAM) -> Host:
        made.append(Host(tmp_path, programs, front))
        return made[-1]

    yield make
    for one in made:
        one.end()


def said(host: Host) -> str:
    """Return what a launcher that the watch has ended wrote to stderr."""
    assert host.launcher.wait() == -signal.SIGTERM
    for process in host.ranks.values():  # they hold its pipes
        if start_watch.parent_and_start(process)[1]:
            os.kill(process, signal.SIGKILL)
    return host.launcher.communicate()[1]


@pytest.mark.parametrize("front", [start_watch.PROGRAM, ()], ids=["its-launcher's", "a-rank's"])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_rank_that_ends_while_another_one_starts_ends_the_job(host, lost: int, front: Sequence[str]) -> None:
    made = host(RANK, RANK, front=front)
    made.read(2)
    os.kill(made.ranks[lost], signal.SIGKILL)
    who = rf"rank {lost} \(process {made.ranks[lost]}\)|a rank"  # if the watch had not looked before it ended
    assert re.fullmatch(rf"scaffe: ({who}) on \S+ has ended before all ranks had started; .*\n", said(made))


@pytest.mark.parametrize("front", [start_watch.PROGRAM, ()], ids=["its-launcher's", "a-rank's"])
@pytest.mark.parametrize("programs", [(DIES, RANK), (RANK, DIES)], ids=["0", "1"])
def test_a_rank_that_ends_before_it_starts_a_watch_ends_the_job(host, programs, front: Sequence[str]) -> None:
    made = host(*programs, front=front)
    made.read(1)
    assert re.fullmatch(r"scaffe: (a rank|rank \d .*) on \S+ has ended before all ranks had started; .*\n", said(made))


def watches(launcher: int) -> int:
    """Return how many watches listen."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    return sum(f"@scaffe start watch {os.readlink('/proc/self/ns/pid')} {launcher} " in line and " 00010000 " in line
               for line in lines)  # fmt: skip


def test_once_a_rank_says_that_all_know_each_other_ranks_may_end(host) -> None:
    made = host(RANK, RANK)
    made.read(2)
    assert watches(made.launcher.pid) == 1
    os.kill(made.ranks[1], signal.SIGUSR1)
    assert made.launcher.stdout.readline() == "told\n"
    os.kill(made.ranks[0], signal.SIGKILL)
    os.kill(made.ranks[1], signal.SIGKILL)
    out, err = made.launcher.communicate()
    assert (made.launcher.returncode, err) == (0, "")
    assert patient(lambda _: not watches(made.launcher.pid), 60)


class Left:
    """Ranks that have ended, all on this host or not."""

    def __init__(self, all_here: bool):
        self.are_left, self.are_all_here = lambda: False, lambda: all_here


@pytest.mark.parametrize("name", ["prterun", "sleep"])
def test_a_launcher_that_outlasts_its_ranks_is_ended(name: str, tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.setattr(start_watch, "LATE_NAP", 0.01)
    with subprocess.Popen([shutil.copy(SLEEP, tmp_path / name), "1000"]) as launcher, ended(launcher):
        assert patient(lambda _: Path(f"/proc/{launcher.pid}/comm").read_text() == f"{name}\n", 60)
        start = start_watch.parent_and_start(launcher.pid)[1]
        if name == "sleep":  # another program has its number: it is never ended
            monkeypatch.setattr(start_watch, "LATE_LOOKS", 3)
            monkeypatch.setattr(start_watch, "nap", counted(10, launcher.kill))
        start_watch.outlast(launcher.pid, start, Left(True))
        assert launcher.wait() == -(signal.SIGTERM if name == "prterun" else signal.SIGKILL)
    assert capfd.readouterr().err.startswith("scaffe: all ranks have ended, and mpirun does not")


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill a process after a test that fails, which would wait for it."""
    try:
        yield
    finally:
        process.kill()


def counted(times: int, then: Callable[[], None]) -> Callable[[int], None]:
    """Return a function that calls `then` when it is called so many times."""
    calls = iter([*[lambda: None] * (times - 1), then, *[lambda: None] * 100000])
    return lambda process: next(calls)()


def test_a_nap_ends_with_the_launcher(monkeypatch) -> None:
    monkeypatch.setattr(start_watch, "LATE_NAP", 10000.0)
    with subprocess.Popen([SLEEP, "1000"]) as launcher:
        launcher.kill()
        start_watch.nap(launcher.pid)


def test_a_launcher_whose_other_ranks_are_on_other_hosts_is_left_alone(tmp_path, monkeypatch, capfd) -> None:
    with subprocess.Popen([shutil.copy(SLEEP, tmp_path / "prterun"), "1000"]) as launcher:
        assert patient(lambda _: start_watch.is_launcher(launcher.pid), 60)
        monkeypatch.setattr(start_watch, "nap", counted(3 * start_watch.LATE_LOOKS, launcher.kill))
        start = start_watch.parent_and_start(launcher.pid)[1]
        start_watch.outlast(launcher.pid, start, Left(False))
        assert launcher.wait() == -signal.SIGKILL
    assert capfd.readouterr().err == ""


def test_ranks_of_a_job_are_all_here_if_no_host_has_others(ranks) -> None:
    seen = Ranks(os.getpid())
    seen.ended()
    assert seen.are_all_here()
    other = Ranks(os.getpid())
    other._size, other._places = 4, 2
    assert not other.are_all_here()


def test_the_watch_that_a_rank_starts_is_the_only_one_and_ends_with_its_launcher(host) -> None:
    made = host(RANK, RANK, front=())
    made.read(2)
    start_watch.start_watch(made.launcher.pid)
    assert watches(made.launcher.pid) == 1
    made.launcher.kill()
    assert patient(lambda _: not watches(made.launcher.pid), 60)


def test_a_command_that_can_t_be_started_is_named() -> None:
    run = subprocess.run([*start_watch.PROGRAM, "no-such-mpirun"], stderr=subprocess.PIPE, text=True)
    assert (run.returncode, run.stderr) == (127, "no-such-mpirun: no such file or directory\n")


# The ranks, as this process's children.


@pytest.fixture
def ranks() -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes of two ranks whose launcher this process is."""
    env = {start_watch.PLACES: "2", start_watch.RANKS: "2"}
    made = [subprocess.Popen([SLEEP, "1000"], env={**env, start_watch.RANK: str(rank)}) for rank in range(2)]
    yield made
    for process in made:
        process.kill()
        process.wait()


def test_a_rank_that_ends_is_named(ranks) -> None:
    seen = Ranks(os.getpid())
    assert seen.ended() == "" and seen.are_left()
    ranks[1].kill()
    os.waitid(os.P_PID, ranks[1].pid, os.WEXITED | os.WNOWAIT)  # a zombie, as its launcher may leave it
    assert seen.ended() == f"rank 1 (process {ranks[1].pid})" and seen.are_left()
    ranks[0].kill()
    ranks[0].wait()
    assert not seen.are_left()


def test_a_stopped_rank_has_not_ended(ranks, monkeypatch) -> None:
    monkeypatch.setattr(start_watch, "sleeps", lambda process: True)
    seen = Ranks(os.getpid())
    ranks[1].send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, ranks[1].pid, os.WSTOPPED)
    assert [seen.ended() for _ in range(2 * start_watch.LONGEST_SLEEP)] == [""] * (2 * start_watch.LONGEST_SLEEP)


def test_a_rank_has_ended_whose_process_id_another_process_has(ranks, monkeypatch) -> None:
    seen = Ranks(os.getpid())
    seen.ended()
    found = start_watch.parent_and_start
    monkeypatch.setattr(start_watch, "parent_and_start", lambda one: (found(one)[0], "7" + found(one)[1]))
    assert seen.ended() == f"rank 0 (process {ranks[0].pid})"


@pytest.mark.parametrize(("asleep", "copy", "found"), [(True, "", "a rank"), (False, "", ""), (True, "prterun", "")])
def test_a_rank_is_missing_once_a_launcher_that_sleeps_has_not_started_it(
    ranks, tmp_path, monkeypatch, asleep: bool, copy: str, found: str
) -> None:
    ranks[1].kill()
    ranks[1].wait()
    if copy:  # of the launcher, which is to become the rank
        ranks[1] = subprocess.Popen([shutil.copy(SLEEP, tmp_path / copy), "1000"], env={})
        assert patient(lambda _: start_watch.is_launcher(ranks[1].pid), 60)
    monkeypatch.setattr(start_watch, "sleeps", lambda process: asleep)
    seen = Ranks(os.getpid())
    looks = [seen.ended() for _ in range(start_watch.LONGEST_SLEEP + 1)]
    assert looks == [""] * start_watch.LONGEST_SLEEP + [found]


def test_a_process_sleeps_while_all_its_threads_do(ranks) -> None:
    assert patient(lambda _: start_watch.sleeps(ranks[0].pid), 60)
    assert not start_watch.sleeps(os.getpid())
    ranks[0].send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, ranks[0].pid, os.WSTOPPED)
    assert not start_watch.sleeps(ranks[0].pid)


@pytest.mark.parametrize("text", ["", "7 (cat) S 1 7"])
def test_a_process_that_ends_while_it_is_read_has_ended(monkeypatch, text: str) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path: text)
    assert start_watch.parent_and_start(os.getpid()) == ("", "")
    assert start_watch.sleeps(os.getpid()) == bool(text)


def test_programs_that_do_not_start_as_scaffe_does_may_lose_ranks(ranks, monkeypatch) -> None:
    looks = iter([([], [], [])] * (3 * start_watch.LONGEST_SLEEP))
    monkeypatch.setattr(select, "select", lambda *args: next(looks))
    monkeypatch.setattr(start_watch, "is_launcher", lambda process: process == os.getpid())
    monkeypatch.setattr(start_watch, "sleeps", lambda process: True)
    monkeypatch.setattr(start_watch, "end_launcher", lambda process: pytest.fail("the job is ended"))
    ranks[1].kill()
    ranks[1].wait()
    with socket.socket(socket.AF_UNIX) as server, pytest.raises(StopIteration):  # it still watched
        start_watch.watch(server, os.getpid())


def test_the_watch_of_a_launcher_that_has_ended_before_it_ends(monkeypatch) -> None:
    launcher = subprocess.Popen(["true"])
    launcher.wait()
    monkeypatch.setattr(select, "select", lambda *args: pytest.fail("it watches nobody"))
    with socket.socket(socket.AF_UNIX) as server:
        start_watch.watch(server, launcher.pid)


@pytest.mark.parametrize(("name", "value"), [("FAULT_TOLERANT", "0"), ("RANKS", "1")])
def test_a_rank_alone_and_one_whose_loss_ends_the_job_need_no_watch(monkeypatch, name: str, value: str) -> None:
    given = {"FAULT_TOLERANT": "1", "RANKS": "2", name: value}
    for one in given:
        monkeypatch.setenv(getattr(start_watch, one), given[one])
    monkeypatch.setattr(start_watch, "is_launcher", lambda process: True)
    monkeypatch.setattr(subprocess, "run", lambda *given, **named: pytest.fail("a watch is started"))
    assert start_watch.connected() is None


def test_a_rank_finds_its_launcher_above_a_shell(host) -> None:
    made = host(f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {RANK!r}])", front=())
    made.read(1)
    assert start_watch.launcher_of(made.ranks[0]) == made.launcher.pid
    assert start_watch.parent_and_start(made.ranks[0])[0] != str(made.launcher.pid)
    assert start_watch.launcher_of(os.getpid()) in (0, start_watch.launcher_of(os.getppid()))


# Real jobs.

PROGRAM = """
import os, signal, sys
lost, *where = sys.argv[1:]
def end(*given):
    os.kill(os.getpid(), signal.SIGKILL)
is_hit = os.environ["PMIX_RANK"] in lost.split("+")
if is_hit and not where:
    end()
from scaffe.parallel import world
if is_hit:
    setattr(world, *where, end)
world.open_world()
"""


@pytest.mark.parametrize("lost", ["0+1", "1 load_mpi", "1 _check_launcher"])  # the last one: behind MPI_Init
def test_a_rank_that_is_lost_while_mpi_starts_ends_the_job(tolerant_mpirun, tmp_path, lost) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = "--with-ft", "ulfm", sys.executable, tmp_path / "program.py", *lost.split()
    result = tolerant_mpirun(3, *command, timeout=120)
    assert result.returncode != 0
    who = rf"rank [{lost[0]}1] \(process \d+\) on \S+|a rank on \S+|a rank"
    assert re.search(rf"^scaffe: ({who}) has ended before all ranks had started; start", result.stderr, re.M)
    assert "Traceback" not in result.stderr
