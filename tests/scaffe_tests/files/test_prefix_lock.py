"""One job at a time writes snapshots of a prefix: who is refused, who takes a dead job's lock over, and when."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict, replace

import nets
import pytest
from conftest import environment

from scaffe.errors import SnapshotError
from scaffe.files import prefix_lock
from scaffe.files.lock_owner import this_process
from scaffe.files.prefix_lock import PATIENCE, PrefixLock

HOLDS = """
import sys
from scaffe.errors import SnapshotError
from scaffe.files.prefix_lock import PrefixLock
lock = PrefixLock(sys.argv[1])
sys.stdin.readline()
try:
    lock.take()
    print("took", flush=True)
except SnapshotError as error:
    print(error, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def prefix(tmp_path):
    return str(tmp_path / "snap")


@pytest.fixture
def job(prefix):
    """Start other processes that take the lock when they are given a line, and leave when they are given another."""
    started = []

    def start():
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen([sys.executable, "-c", HOLDS, prefix], env=environment(), **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def go(process):
    process.stdin.write("\n")
    process.stdin.flush()


def never(seconds):
    pytest.fail("waited where it is certain who has the lock")


@pytest.fixture
def lock(prefix):
    """Make locks of the prefix; they are released at the end."""
    made = []

    def make(wait=never):
        made.append(PrefixLock(prefix, wait=wait))
        return made[-1]

    yield make
    for one in made:
        one.release()


def left(prefix, **fields):
    """Leave a lock file with an owner of another machine, or with these fields; return the owner."""
    owner = replace(this_process(), **{"host": "far", "machine": "another", **fields})
    with open(f"{prefix}.lock", "w") as file:
        json.dump(asdict(owner), file)
    return owner


def owner_of(prefix):
    with open(f"{prefix}.lock") as file:
        return json.load(file)["pid"]


def test_a_second_process_is_refused_and_takes_over_when_the_first_is_killed(prefix, job, lock):
    first = job()
    go(first)
    assert first.stdout.readline() == "took\n"
    with pytest.raises(
        SnapshotError, match=rf"snap': another job writes there \(process {first.pid} on .*\); wait until it ends"
    ):
        lock().take()
    assert owner_of(prefix) == first.pid
    first.kill()
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # dead, though its parent has not asked for its status
    assert os.path.exists(f"{prefix}.lock")
    lock().take()
    assert owner_of(prefix) == os.getpid()


def test_a_lost_ranks_lock_is_taken_over_though_its_process_runs(prefix, job, lock):
    lost = job()
    go(lost)
    assert lost.stdout.readline() == "took\n"
    with open(f"{prefix}.lock") as file:
        token = json.load(file)["token"]
    mine = lock()
    with pytest.raises(SnapshotError, match=f"another job writes there \\(process {lost.pid} on "):
        mine.take({"another's"})
    assert mine.take({token}) != token
    go(lost)
    lost.wait()
    assert os.path.exists(f"{prefix}.lock")  # it is another's now


def test_a_process_that_ends_takes_its_lock_with_it(prefix, job):
    first = job()
    go(first)
    first.stdout.readline()
    assert os.path.exists(f"{prefix}.lock")
    first.communicate("\n")
    assert not os.path.exists(f"{prefix}.lock")


def test_of_many_who_find_a_dead_jobs_lock_one_gets_it(prefix, job):
    left(prefix, machine=this_process().machine, started=1)
    rivals = [job() for _ in range(4)]
    for rival in rivals:
        go(rival)
    said = [rival.stdout.readline() for rival in rivals]
    [winner] = [rival for rival, line in zip(rivals, said, strict=True) if line == "took\n"]
    assert owner_of(prefix) == winner.pid
    assert sum("another job writes there" in line for line in said) == 3
    assert os.listdir(os.path.dirname(prefix)) == ["snap.lock"]


def test_solvers_of_one_process_have_it_together(prefix, lock):
    one, two = lock(), lock()
    one.take()
    two.take()
    one.release()
    one.release()
    assert os.path.exists(f"{prefix}.lock")
    two.release()
    assert os.listdir(os.path.dirname(prefix)) == []


def test_a_forked_child_that_ends_leaves_it(prefix, lock):
    mine = lock()
    mine.take()
    if not (child := os.fork()):
        mine.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert owner_of(prefix) == os.getpid()


def test_it_is_one_lock_by_whatever_path_the_folder_is_reached(prefix, lock, tmp_path, monkeypatch):
    lock().take()
    (tmp_path.parent / f"{tmp_path.name}_link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    for other in (str(tmp_path.parent / f"{tmp_path.name}_link/snap"), "snap"):
        again = PrefixLock(other, wait=never)
        again.take()
        again.release()


def test_a_process_that_has_only_the_number_of_a_dead_one_counts_for_nothing(prefix, lock):
    left(prefix, machine=this_process().machine, started=1)
    lock().take()
    assert owner_of(prefix) == os.getpid()


# Owners on other machines, of whom the file alone is seen.


class Watching:
    """What is done between two looks, in place of waiting; counts them."""

    def __init__(self, prefix, act=lambda path, times: None):
        self.path, self.act, self.times = f"{prefix}.lock", act, 0

    def __call__(self, seconds):
        self.times += 1
        self.act(self.path, self.times)


def test_one_elsewhere_that_shows_no_life_loses_it(prefix, lock):
    left(prefix)
    watching = Watching(prefix)
    lock(watching).take()
    assert watching.times == PATIENCE
    assert owner_of(prefix) == os.getpid()


@pytest.mark.parametrize("ahead", [-(10**6), 10**6], ids=["its clock is behind", "its clock is ahead"])
def test_one_elsewhere_that_lives_keeps_it_whatever_its_clock_says(prefix, lock, ahead):
    left(prefix, job="77")
    now = os.stat(f"{prefix}.lock").st_mtime

    def beat(path, times):
        if times == PATIENCE - 1:
            os.utime(path, (now + ahead, now + ahead))

    with pytest.raises(SnapshotError, match=r"another job writes there \(process \d+ on far, SLURM job 77\)"):
        lock(Watching(prefix, beat)).take()


def test_one_elsewhere_that_ends_meanwhile_gives_it_away(prefix, lock):
    left(prefix)
    watching = Watching(prefix, lambda path, times: times == 3 and os.unlink(path))
    lock(watching).take()
    assert watching.times == 3


def test_what_a_job_left_that_was_killed_while_it_took_over_is_named(prefix, lock):
    left(prefix, machine=this_process().machine, started=1)
    open(f"{prefix}.lock.next", "w").close()
    watching = Watching(prefix, lambda path, times: times <= PATIENCE + 1 or pytest.fail("waits for ever"))
    with pytest.raises(SnapshotError, match=r"snap\.lock\.next: left by a job that was killed; remove it"):
        lock(watching).take()


def test_who_takes_it_over_before_this_one_is_looked_at_anew(prefix, lock):
    left(prefix)
    here = this_process().machine
    dead = lambda path, times: times == 3 and left(prefix, machine=here, started=1)  # noqa: E731
    watching = Watching(prefix, dead)
    lock(watching).take()  # at once: the other one has died too
    assert watching.times == 3


def test_of_two_who_take_it_over_at_once_the_later_one_is_refused(prefix, lock, monkeypatch):
    left(prefix, machine=this_process().machine, started=1)
    make = prefix_lock._make

    def late(path):
        nets.lock_of_a_running_job(prefix)  # between the last look at the dead one's and this
        return make(path)

    monkeypatch.setattr(prefix_lock, "_make", late)
    with pytest.raises(SnapshotError, match="another job writes there"):
        lock().take()
    assert owner_of(prefix) == os.getppid()
    assert os.listdir(os.path.dirname(prefix)) == ["snap.lock"]


@pytest.mark.parametrize("fields", [{"host": "\x1b[2J\n"}, {"pid": "7"}, {"started": None}])
def test_a_file_that_says_nothing_is_watched_and_not_printed(prefix, lock, fields):
    left(prefix, machine=this_process().machine, **fields)
    with pytest.raises(SnapshotError, match=r"another job writes there \(unknown\)"):
        lock(Watching(prefix, lambda path, times: os.utime(path, (times, times)))).take()
    lock(Watching(prefix)).take()
    assert owner_of(prefix) == os.getpid()


@pytest.mark.parametrize(("restarts", "certain"), [("1", True), ("0", False)])
def test_a_requeued_slurm_job_has_its_own_lock_again_at_once(prefix, lock, monkeypatch, restarts, certain):
    left(prefix, job="77")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
    watching = Watching(prefix)
    lock(watching).take()
    assert watching.times == (0 if certain else PATIENCE)


# A lock that is held.


def test_its_owner_shows_life(prefix, lock, monkeypatch):
    touched, utime = threading.Event(), os.utime
    monkeypatch.setattr(prefix_lock, "BEAT", 0.001)
    monkeypatch.setattr(os, "utime", lambda file: (utime(file), touched.set()))
    lock().take()
    utime(f"{prefix}.lock", (5, 5))
    for _ in range(2):  # the first may have been under way
        touched.clear()
        assert touched.wait(900)
    assert os.stat(f"{prefix}.lock").st_mtime > 5


def test_one_that_was_taken_over_meanwhile_is_not_written_under(prefix, lock):
    mine = lock()
    mine.take()
    left(prefix)
    with pytest.raises(
        SnapshotError, match=r"\(process \d+ on far\) has taken over its lock while this job was stopped"
    ):
        mine.take()
    mine.release()
    assert os.path.exists(f"{prefix}.lock")  # it is another's


def test_one_that_somebody_removed_is_made_again(prefix, lock):
    mine = lock()
    mine.take()
    os.unlink(f"{prefix}.lock")
    mine.take()
    assert owner_of(prefix) == os.getpid()
    mine.release()
    assert not os.path.exists(f"{prefix}.lock")


def test_a_link_in_its_place_is_refused(prefix, lock, tmp_path):
    os.symlink(tmp_path / "elsewhere", f"{prefix}.lock")
    with pytest.raises(SnapshotError, match=r"snap\.lock: too many levels of symbolic links"):
        lock().take()
    assert not (tmp_path / "elsewhere").exists()


def test_where_it_cant_be_made_that_is_told(tmp_path):
    with pytest.raises(SnapshotError, match=r"snapshot_prefix '.*/gone/snap': .*/gone/snap\.lock: no such file"):
        PrefixLock(str(tmp_path / "gone/snap")).take()
